"""One machine on one journal: apply, record, act, answer. Every shell drives its machine with this.

Persist before act: an event is applied to a copy nobody sees, written to the journal together with
its time and seed, and only when that is on the disk are its effects carried out, its sender
answered and the new state shown. After `kill -9` the journal, applied again from its snapshot,
gives the same state byte for byte.

- `take` does all of that at once; `submit` lets events that wait while the disk is busy be written
  as one record, and needs `serve`. A shell uses one of the two.
- What was recorded and perhaps not carried out before the last holder died is in `unfinished`,
  effects in their order. It stays recorded as such until something newer is.
- `epoch` is larger than that of every holder before. Put it in what is sent to others who must not
  obey an old holder; the journal itself refuses one (`Fenced`).
- A disk that is full stops nothing for good: nothing is decided while nothing can be kept.
"""

import asyncio
import errno
import logging
import secrets
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, Protocol

import msgspec

from folkmoot.core.machine import Effect, Machine, Outcome, Refused, State, Tick
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.host.clock import Clock, standing_clock
from folkmoot.host.journal import JournalError

logger = logging.getLogger(__name__)

# Events taken together at most, and journal bytes after which a snapshot replaces the records.
BATCH = 4096
COMPACT_BYTES = 32 * 1024 * 1024
# Seconds until a full disk is tried again.
RETRY = 1.0
FULL = (errno.ENOSPC, errno.EDQUOT)


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One event as it was applied."""

    now: int
    seed: int
    event: msgspec.Raw


class Snapshot(msgspec.Struct, frozen=True, array_like=True, tag="snapshot"):
    """Whose journal it is, the state that the records after it are applied to, and its time."""

    owner: str
    now: int
    state: bytes


class RecordBatch(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    """Entries recorded as one; the effects of the first `acted` batches had been carried out."""

    acted: int
    entries: tuple[Entry, ...]


_encode = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(Snapshot | RecordBatch).decode


class Step(NamedTuple):
    """What one record changed: for those who carry out its effects and show the new state."""

    before: Any
    after: Any
    events: tuple[Any, ...]  # that were recorded
    effects: tuple[Effect, ...]  # of these and of those that were refused
    now: int


class Log(Protocol):
    """Where records are kept: a `Journal`, or what promises the same."""

    epoch: int
    records: list[bytes]
    size: int
    begun: int

    @property
    def path(self) -> Any: ...
    def begin(self, *records: bytes) -> None: ...
    def append(self, record: bytes) -> None: ...
    def close(self) -> None: ...


class Durable(Generic[State]):
    """Holds one machine. `act` is called with every `Step`, once it is on the disk."""

    def __init__(
        self,
        machine: Machine[State],
        journal: Log,
        owner: str,
        create: Callable[[], State],
        act: Callable[[Step], None],
        *,
        clock: Callable[[int], Clock] = standing_clock,
        draw: Callable[[], int] = lambda: secrets.randbits(64),
        compact_bytes: int = COMPACT_BYTES,
    ) -> None:
        self._machine, self._journal = machine, journal
        self._decode = msgspec.msgpack.Decoder(machine.AnyEvent).decode
        self._owner, self._act = owner, act
        self._draw, self._compact_bytes = draw, compact_bytes
        self._recorded = 0  # batches in this file; all but the last had been acted on
        self._inbox: list[tuple[Any, asyncio.Future[Refused | None]]] = []
        self._wake = asyncio.Event()
        self.epoch, self.resumed = journal.epoch, bool(journal.records)
        self.unfinished: tuple[Effect, ...] = ()
        try:
            self.state, last = self._recover() if self.resumed else self._begin(create)
        except BaseException:
            journal.close()
            raise
        self.now = clock(last)

    # Events.

    def take(self, event: Any) -> Outcome[State]:
        """Apply, record and act at once. Raises `OSError` when it cannot be recorded."""
        return self.take_all((event,))[0]

    def take_all(self, events: Iterable[Any]) -> list[Outcome[State]]:
        """Like `take`, one after the other in one record: the disk is waited for once."""
        step = _Pending(self._machine, self.state, self.now(), self._draw)
        outcomes = [step.take(event) for event in events]
        step.take_due_ticks()
        if step.entries:
            self._journal.append(self._batch(step))
        self._finish(step)
        if self._long():
            self._journal.begin(self._snapshot())
            self._recorded = 0
        self._wake.set()
        return outcomes

    async def submit(self, event: Any) -> Refused | None:
        """Why the event was refused, or None once it is on the disk. `serve` must be running."""
        answer: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
        self._inbox.append((event, answer))
        self._wake.set()
        return await answer

    # Time.

    async def serve(
        self,
        due: Callable[[], int | None] | None = None,
        on_due: Callable[[], None] | None = None,
    ) -> None:
        """Apply what is submitted and tick when something is due, until cancelled.

        A shell with times of its own says when the next one is (`due`) and what to do then.
        """
        next_due = due or (lambda: self._machine.next_tick(self.state, self.now()))
        try:
            while True:
                at = next_due()
                late = await self._wait(None if at is None else max(at - self.now(), 0) / 1000)
                try:
                    if late and on_due:
                        on_due()
                    elif late or self._inbox:
                        await self._take_waiting(late)
                except OSError as error:
                    await self._endure(error)
        finally:
            self.close()

    def wake(self) -> None:
        """Ask again what is due."""
        self._wake.set()

    def close(self) -> None:
        """Let the journal go; it has all that a later holder needs."""
        for _, answer in self._inbox:
            answer.cancel()
        self._inbox = []
        self._journal.close()

    async def _wait(self, seconds: float | None) -> bool:
        """Until something is submitted (False) or the time is over (True)."""
        try:
            # Not `wait_for`: in Python 3.11 it forgets that it was cancelled if it ends just then.
            async with asyncio.timeout(seconds):
                await self._wake.wait()
            return False
        except TimeoutError:
            return True
        finally:
            self._wake.clear()

    async def _take_waiting(self, tick: bool) -> None:
        taken, self._inbox = self._inbox[:BATCH], self._inbox[BATCH:]
        if self._inbox:
            self._wake.set()
        step = _Pending(self._machine, self.state, self.now(), self._draw)
        answers = [(answer, step.take(event).refused) for event, answer in taken]
        if tick:
            step.take(Tick())
        step.take_due_ticks()
        try:
            if step.entries:
                await asyncio.to_thread(self._journal.append, self._batch(step))
        except BaseException as error:
            for answer, _ in answers:
                _fail(answer, error)
            raise
        self._finish(step)
        for answer, refused in answers:
            if not answer.done():
                answer.set_result(refused)
        if self._long():
            await asyncio.to_thread(self._journal.begin, self._snapshot())
            self._recorded = 0

    async def _endure(self, error: OSError) -> None:
        if error.errno not in FULL:
            raise error
        logger.error("nothing is decided while the journal cannot be written: %s", error)
        await asyncio.sleep(RETRY)

    def _finish(self, step: "_Pending[State]") -> None:
        before, self.state = self.state, step.state
        self._recorded += bool(step.entries)
        events = tuple(event for event, _ in step.entries)
        self._act(Step(before, self.state, events, tuple(step.effects), step.now))

    # The journal.

    def _batch(self, step: "_Pending[State]") -> bytes:
        entries = tuple(
            Entry(step.now, seed, msgspec.Raw(_encode(event))) for event, seed in step.entries
        )
        return _encode(RecordBatch(self._recorded, entries))

    def _long(self) -> bool:
        """Whether a snapshot is worth its bytes: they are written again each time."""
        return self._journal.size > max(self._compact_bytes, 4 * self._journal.begun)

    def _snapshot(self) -> bytes:
        return _encode(Snapshot(self._owner, self.now(), self._machine.encode(self.state)))

    def _begin(self, create: Callable[[], State]) -> tuple[State, int]:
        state = create()
        self._journal.begin(_encode(Snapshot(self._owner, 0, self._machine.encode(state))))
        return state, 0

    def _recover(self) -> tuple[State, int]:
        """Replay; the new file begins where nothing is left to carry out."""
        try:
            first, *batches = map(decode_record, self._journal.records)
            if not isinstance(first, Snapshot) or not all(
                isinstance(b, RecordBatch) for b in batches
            ):
                raise msgspec.ValidationError("it is not one state and what followed")
            if first.owner != self._owner:
                raise JournalError(
                    f"{self._journal.path} belongs to '{first.owner}', not to '{self._owner}':"
                    " use another state folder"
                )
            acted = max((batch.acted for batch in batches), default=0)
            state, now, _ = self._replay(
                self._machine.decode(first.state), first.now, batches[:acted]
            )
            settled = Snapshot(self._owner, now, self._machine.encode(state))
            rest = batches[acted:]
            state, now, self.unfinished = self._replay(state, now, rest)
        except UNREADABLE as error:
            raise JournalError(
                f"{self._journal.path} holds what this version cannot read ({error}): use the"
                " version that wrote it, or another state folder"
            ) from error
        again = [RecordBatch(0, batch.entries) for batch in rest]
        self._journal.begin(*map(_encode, (settled, *again)))
        self._recorded = len(rest)
        return state, now

    def _replay(
        self, state: State, now: int, batches: list[RecordBatch]
    ) -> tuple[State, int, tuple[Effect, ...]]:
        effects: list[Effect] = []
        for batch in batches:
            for entry in batch.entries:
                event, now = self._decode(entry.event), entry.now
                state, given = self._machine.apply(state, event, now, entry.seed)
                effects += given
        return state, now, tuple(effects)


class _Pending(Generic[State]):
    """A step on its way: the state nobody sees yet, and what to record and to carry out of it."""

    def __init__(
        self, machine: Machine[State], state: State, now: int, draw: Callable[[], int]
    ) -> None:
        self._machine, self._draw = machine, draw
        self.state, self.now = state, now
        self.entries: list[tuple[Any, int]] = []  # events with their seeds
        self.effects: list[Effect] = []

    def take(self, event: Any) -> Outcome[State]:
        seed = self._draw()
        outcome = self._machine.apply(self.state, event, self.now, seed)
        if outcome.state is not self.state:
            self.entries.append((event, seed))
        self.state = outcome.state
        self.effects += outcome.effects
        return outcome

    def take_due_ticks(self) -> None:
        """Pass phases that are over as they begin, so that they are recorded and shown as one."""
        for _ in self._machine.TABLE:
            due = self._machine.next_tick(self.state, self.now)
            if due is None or due > self.now:
                return
            before = self.state
            self.take(Tick())
            if self.state is before:
                return


def _fail(answer: "asyncio.Future[Any]", error: BaseException) -> None:
    if answer.done():
        return
    if isinstance(error, OSError):
        answer.set_exception(error)
    else:
        answer.cancel()
