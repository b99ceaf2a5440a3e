"""Keeps one run: applies messages in order, records them, then answers and shows what changed.

Persist before act: a message is applied to a copy nobody sees, written to the journal together
with its time and seed, and only when that is on the disk is its sender answered and the new state
shown. After `kill -9` the journal, applied again from its snapshot, gives the same state byte for
byte. Messages that wait while the disk is busy are written as one record.

The run's clock stands still while no keeper runs: clients are not silent because we were.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from folkmoot.core.coordinator import (
    Coordinator,
    Phase,
    Run,
    apply,
    create,
    decode,
    encode,
    next_tick,
)
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.view import view
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.host.journal import Journal, JournalError

# Messages taken together at most, and journal bytes after which a snapshot replaces the records.
BATCH = 4096
COMPACT_BYTES = 32 * 1024 * 1024


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One message as it was applied."""

    now: int
    seed: int
    message: m.AnyEvent


class Snapshot(msgspec.Struct, frozen=True, array_like=True, tag="snapshot"):
    """The state that the records after it are applied to, and the run's time."""

    now: int
    state: bytes


class Batch(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    entries: tuple[Entry, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot | Batch)

Listener = Callable[[m.Effect, int], None]


class Keeper:
    """One run on one journal. `serve` must run for anything to happen."""

    def __init__(self, run: Run, journal: Path, listen: Listener | None = None) -> None:
        self._journal = Journal(journal)
        self._listen = listen or (lambda effect, now: None)
        try:
            self.state, start, self.resumed = self._recover(run)
        except BaseException:
            self._journal.close()
            raise
        self._begun = time.monotonic() - start / 1000
        self._inbox: list[tuple[m.AnyEvent, asyncio.Future[m.Refused | None]]] = []
        self._wake = asyncio.Event()
        self._shown = asyncio.Condition()
        self.view = view(self.state)
        self.version = 0
        self._turn = 0  # counts the versions in which more changed than who waits

    def _recover(self, run: Run) -> tuple[Coordinator, int, bool]:
        records = self._journal.records
        if not records:
            state = create(run, 0)
            self._journal.append(_encoder.encode(Snapshot(0, encode(state))))
            return state, 0, False
        state, now = create(run, 0), 0
        try:
            for record in records:
                state, now = _replayed(state, now, record)
        except UNREADABLE as error:
            raise JournalError(
                f"{self._journal.path} holds what this version cannot read ({error}): use the"
                " version that wrote it, or another state folder"
            ) from error
        if state.run.run_id != run.run_id:
            raise JournalError(
                f"{self._journal.path} belongs to run '{state.run.run_id}', not to '{run.run_id}':"
                " use another state folder"
            )
        self._journal.records = []
        return state, now, True

    def now(self) -> int:
        """The run's time in milliseconds."""
        return round((time.monotonic() - self._begun) * 1000)

    async def submit(self, message: m.AnyEvent) -> m.Refused | None:
        """Why the message was refused, or None once it is on the disk."""
        answer: asyncio.Future[m.Refused | None] = asyncio.get_running_loop().create_future()
        self._inbox.append((message, answer))
        self._wake.set()
        return await answer

    async def watch(
        self, patience: Callable[[], float] = lambda: 0.0
    ) -> AsyncIterator[tuple[int, Coordinator]]:
        """(version, view): the present one, then whenever there is a newer one, the newest.

        That only others wait than before is told with the next change, or after `patience` seconds.
        """
        seen = turn = -1
        while True:
            async with self._shown:
                await self._shown.wait_for(lambda: self.version != seen)  # noqa: B023
                with suppress(TimeoutError):
                    async with asyncio.timeout(patience()):
                        await self._shown.wait_for(lambda: self._turn != turn)  # noqa: B023
                seen, turn, shown = self.version, self._turn, self.view
            yield seen, shown

    async def serve(self) -> None:
        """Apply what arrives and tick when something is due, until cancelled."""
        try:
            while True:
                await self._wait()
                await self._step()
        finally:
            self._fail_waiting()
            self._journal.close()

    async def _wait(self) -> None:
        due = next_tick(self.state, self.now())
        timeout = None if due is None else max(due - self.now(), 0) / 1000
        try:
            await asyncio.wait_for(self._wake.wait(), timeout)
        except TimeoutError:
            self._inbox.append((m.Tick(), asyncio.get_running_loop().create_future()))
        self._wake.clear()

    async def _step(self) -> None:
        """Apply a batch, record it, then answer and show."""
        taken, self._inbox = self._inbox[:BATCH], self._inbox[BATCH:]
        if self._inbox:
            self._wake.set()
        working = _Step(self.state, self.now())
        answers = [(answer, working.take(message)) for message, answer in taken]
        working.take_due_ticks()
        if working.entries:
            await self._record(Batch(tuple(working.entries)), working.state, working.now)
        before, self.state = self.state, working.state
        for effect in working.effects:
            self._listen(effect, working.now)
        for answer, refused in answers:
            if not answer.done():
                answer.set_result(refused)
        await self._show(before)

    async def _record(self, batch: Batch, state: Coordinator, now: int) -> None:
        record = _encoder.encode(batch)
        await asyncio.to_thread(self._journal.append, record)
        if self._journal.size > COMPACT_BYTES:
            snapshot = _encoder.encode(Snapshot(now, encode(state)))
            await asyncio.to_thread(self._journal.compact, snapshot)

    async def _show(self, before: Coordinator) -> None:
        shown = view(self.state, (before, self.view))
        if shown != self.view:
            async with self._shown:
                self._turn += replace(shown, pending=self.view.pending) != self.view
                self.view, self.version = shown, self.version + 1
                self._shown.notify_all()

    def close(self) -> None:
        """Let the journal go; for a keeper that never served."""
        self._journal.close()

    def _fail_waiting(self) -> None:
        for _, answer in self._inbox:
            answer.cancel()
        self._inbox = []


def _replayed(state: Coordinator, now: int, record: bytes) -> tuple[Coordinator, int]:
    """The state and the time after one record."""
    match _decoder.decode(record):
        case Snapshot(at, data):
            return decode(data), at
        case Batch(entries):
            for entry in entries:
                state, now = apply(state, entry.message, entry.now, entry.seed)[0], entry.now
    return state, now


class _Step:
    """A batch on its way: the state nobody sees yet, and what to record and to tell of it."""

    def __init__(self, state: Coordinator, now: int) -> None:
        self.state = state
        self.now = now
        self.entries: list[Entry] = []
        self.effects: list[m.Effect] = []

    def take(self, message: m.AnyEvent) -> m.Refused | None:
        """Apply one message; why it was refused, if it was."""
        seed = secrets.randbits(64)
        new, given = outcome = apply(self.state, message, self.now, seed)
        if new is not self.state:
            self.entries.append(Entry(self.now, seed, message))
        self.state = new
        self.effects += given
        return outcome.refused

    def take_due_ticks(self) -> None:
        """Pass phases that are over as they begin, so that they are recorded and shown as one."""
        for _ in Phase:
            due = next_tick(self.state, self.now)
            if due is None or due > self.now:
                return
            before = self.state
            self.take(m.Tick())
            if self.state is before:
                return
