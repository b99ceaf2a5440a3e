"""The coordinator without its wire: the machine of `core.federation`, a journal, a bucket.

Every event goes one way: the machine decides, the journal keeps the event, then its effects are
carried out. A coordinator that is killed between any two of these and started again replays the
journal, finds itself in the same round with the same updates, and goes on; nothing that must happen
once happens twice, and the next global model has the same bits.

All methods run on one event loop. Reading, checking and combining models runs on worker threads.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from folkmoot.core import federation as rules
from folkmoot.core.federation import messages as m
from folkmoot.core.federation.liveness import Liveness
from folkmoot.core.federation.state import Delivery, State
from folkmoot.exchange.bucket import Bucket, BucketError
from folkmoot.federated.coordinator import events
from folkmoot.federated.coordinator.bucket import CoordinatorBucket
from folkmoot.federated.coordinator.config import Federation
from folkmoot.federated.coordinator.metrics import Meters
from folkmoot.federated.coordinator.secure_rounds import SecureRounds
from folkmoot.federated.coordinator.updates import combine, lost
from folkmoot.federated.model_file.layout import layout_of
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.secure.masks import Mask
from folkmoot.host.clock import wall_clock
from folkmoot.host.event_log import EventLog
from folkmoot.host.journal import Journal, JournalError

logger = logging.getLogger(__name__)
COMPACT_AT = 128 * 1024
WORKERS = 2


class Snapshot(msgspec.Struct, frozen=True, tag=True):
    """The first record of a journal: whose it is, and the state that the others continue."""

    run_id: str
    seed: bytes
    state: bytes


class Happened(msgspec.Struct, frozen=True, tag=True):
    """Every other record: an event and the time at which it was applied."""

    now: int
    event: m.AnyEvent


Record = Snapshot | Happened
_decode = msgspec.msgpack.Decoder(Record).decode


def round_seed(secret: bytes) -> int:
    """What the machine's choices come from; it tells nothing about the secret."""
    return int.from_bytes(sha256(b"folkmoot rounds" + secret).digest()[:8], "little")


class Coordinator:
    def __init__(
        self,
        config: Federation,
        *,
        clock: Callable[[], int] = wall_clock,
        journal: Callable[[Path], Journal] = Journal,
        meters: Meters | None = None,
    ) -> None:
        self.config = config
        self._wall, self._now = clock, 0
        folder = Path(config.server.state)
        self._journal = journal(folder / "journal")
        self.log = EventLog(folder / "events.jsonl", self.now)
        bucket = Bucket(config.bucket.url, config.bucket.options)
        self.store = CoordinatorBucket(bucket, folder, config.bucket.max_object)
        self.meters = meters or Meters()
        self.liveness = Liveness(config.rounds.expiry_ms)
        self.workers = ThreadPoolExecutor(WORKERS, "folkmoot-worker")
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._tidying = asyncio.Lock()
        self.finished = asyncio.Event()
        self.secure = SecureRounds(
            config.run_id, config.secure, lambda: self.state, self.submit, self.log.write, folder
        )
        self.failure: BaseException | None = None
        self.resumed = bool(self._journal.records)
        try:
            self.state, self.seed = self._replay() if self.resumed else self._begin()
        except BaseException:
            self._journal.close()
            raise

    def now(self) -> int:
        """Never earlier than before, even when the wall clock is set back."""
        self._now = max(self._now, self._wall())
        return self._now

    # Life.

    async def start(self) -> None:
        """Take up where the journal ends."""
        now = self.now()
        for id in self.state.members:
            self.liveness.heard(id, now)
        if self.resumed:
            # After a crash of the machine, an update that was never synced may be gone.
            await self._ask_again(list(self.state.deliveries.values()))
        if self.state.closing and not self._closing:
            self._aggregate(self.state.closing)
        if self.state.phase == rules.Phase.FINISHED:
            self.finished.set()
        self.meters.observe(self.state)
        self._arm()

    async def stop(self) -> None:
        """Release everything; the journal has all that a later start needs."""
        if self._timer:
            self._timer.cancel()
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for waiting in self._waiting.values():
            waiting.cancel()
        await asyncio.to_thread(self.workers.shutdown, cancel_futures=True)
        self.log.write(events.Stopped(self.state.phase, self.state.round))
        self.log.close()
        self._journal.close()

    # Events.

    def submit(self, event: m.AnyEvent) -> tuple[m.Effect, ...]:
        """Decide, persist, act."""
        before, now = self.state, self.now()
        after, effects = rules.apply(before, event, now, round_seed(self.seed))
        if after is not before:
            self._journal.append(msgspec.msgpack.encode(Happened(now, event)))
            self.state = after
            self._act(before, event, effects)
        return effects

    def heard(self, id: str) -> None:
        """A participant gave a sign of life."""
        if id in self.state.members and self.state.phase != rules.Phase.FINISHED:
            self.liveness.heard(id, self.now())
            if self._timer is None:
                self._arm()

    async def changed(self, id: str, patience: float) -> None:
        """Wait until what `id` would be told may have changed, or `patience` seconds."""
        if earlier := self._waiting.get(id):
            _wake(earlier)
        mine = self._waiting[id] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait_for(mine, patience)
        except TimeoutError:
            pass
        finally:
            if self._waiting.get(id) is mine:
                del self._waiting[id]

    def _act(self, before: State, event: m.AnyEvent, effects: tuple[m.Effect, ...]) -> None:
        for effect in effects:
            self.log.write(effect)
            if isinstance(effect, m.Joined):
                self.liveness.heard(effect.id, self.now())
            elif isinstance(effect, m.Left):
                self.liveness.forget([effect.id])
            elif isinstance(effect, m.Aggregate):
                self._aggregate(effect.keys)
        if self.state.phase == rules.Phase.FINISHED:
            self.finished.set()
        self.secure.observe(effects)
        self._wake_changed(before, event)
        self.meters.observe(self.state)
        self._arm()

    def _wake_changed(self, before: State, event: m.AnyEvent) -> None:
        """Answer held heartbeats; a delivery concerns only its sender, and there are many."""
        after = self.state
        same = (before.phase, before.round, before.selected, bool(before.closing)) == (
            after.phase,
            after.round,
            after.selected,
            bool(after.closing),
        )
        waiting = [getattr(event, "id", "")] if same else list(self._waiting)
        for id in waiting:
            if id in self._waiting:
                _wake(self._waiting[id])

    # Time.

    def _arm(self) -> None:
        """Wake when somebody may have expired or the deadline passes, whichever is first."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        times = [
            t for t in (self.liveness.next_expiry(), rules.next_tick(self.state, self.now())) if t
        ]
        if times and self.state.phase != rules.Phase.FINISHED:
            delay = max(0, min(times) - self.now()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay, self._wake_up)

    def _wake_up(self) -> None:
        self._timer = None
        lost = self.liveness.expired(self.now())
        try:
            if lost:
                self.submit(m.Dropped(lost))
            self.submit(m.Tick())
        except OSError as error:
            # Nothing was decided, since nothing could be kept. Look again soon.
            logger.error("the journal cannot be written: %s", error)
            for id in lost:
                self.liveness.heard(id, self.now())
            self._timer = asyncio.get_running_loop().call_later(1.0, self._wake_up)
        if self._timer is None:
            self._arm()

    # Closing a round.

    def _aggregate(self, keys: tuple[str, ...]) -> None:
        deliveries = [self.state.deliveries[key] for key in keys]
        task = asyncio.get_running_loop().create_task(self._close(deliveries))
        self._closing.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        """A round whose closing failed in a way we do not know stops the coordinator, loudly."""
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.failure = error
            self.finished.set()

    async def _close(self, deliveries: list[Delivery]) -> None:
        """Make the next global model; a failure of the disk or the bucket is tried again."""
        delay, round_ = 1.0, self.state.round
        while True:
            started, residue = time.perf_counter(), None
            if self.secure.applies():
                residue = await self.secure.unmask(deliveries)
                if residue is None:
                    return
            try:
                done = await self._combine(deliveries, residue)
                seconds = time.perf_counter() - started
                self.submit(m.Written(round_, done.digest))
            except (BucketError, OSError, ValueError) as error:
                self.log.write(events.AggregationFailed(round_, str(error), delay))
                if await self._ask_again(deliveries):
                    return
                await asyncio.sleep(delay)
                delay = min(delay * 2, 60.0)
                continue
            count = len(deliveries)
            self.log.write(
                events.Aggregated(round_, count, seconds, done.digest, dict(done.figures))
            )
            self.meters.aggregated(seconds)
            async with self._tidying:
                await self._tidied(round_, [delivery.key for delivery in deliveries])
            return

    async def _tidied(self, closed: int, keys: list[str]) -> None:
        """Tidy up; what is left over does no harm, so trouble with it stops nothing."""
        try:
            await self._tidy(closed, keys)
        except (BucketError, OSError) as error:
            logger.warning("round %d is closed but not tidied up: %s", closed, error)

    async def _combine(self, deliveries: list[Delivery], residue: list[Mask] | None) -> Any:
        return await self._run(
            combine, self.config, self.store, self.state, self.seed, deliveries, residue
        )

    async def _ask_again(self, deliveries: list[Delivery]) -> bool:
        """Give up updates that cannot be read back; whether there were any."""
        gone = await self._run(lost, self.store, deliveries)
        if gone:
            self.submit(m.Lost(tuple(gone)))
        return bool(gone)

    async def _tidy(self, closed: int, used: list[str]) -> None:
        """Forget what the closed round needed; keep the journal short."""
        if count := await self._run(self._tidy_files, closed, used):
            self.log.write(events.Pruned(closed + 2 - self.config.bucket.keep_rounds, count))
        if self._journal.size > COMPACT_AT:
            self._journal.compact(self._snapshot(self.state, self.seed))

    def _tidy_files(self, closed: int, used: list[str]) -> int:
        """On a worker thread; how many objects of old rounds were pruned."""
        if not self.config.bucket.keep_updates:
            self.store.consume(used)
        self.store.forget_rounds(closed - self.config.rounds.max_staleness)
        self.store.forget_memory(closed)
        keep = self.config.bucket.keep_rounds
        return self.store.prune(closed + 2 - keep) if keep else 0

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.workers, function, *arguments)

    # The journal.

    def _snapshot(self, state: State, seed: bytes) -> bytes:
        return msgspec.msgpack.encode(Snapshot(self.config.run_id, seed, rules.encode(state)))

    def _begin(self) -> tuple[State, bytes]:
        config = self.config
        seed = bytes.fromhex(config.seed) if config.seed else secrets.token_bytes(32)
        digest = ""
        if config.initial_weights:
            digest = _publish_initial(self.store, Path(config.initial_weights))
        state = rules.create(config.rounds, initial=not digest, global_digest=digest)
        self._journal.append(self._snapshot(state, seed))
        return state, seed

    def _replay(self) -> tuple[State, bytes]:
        first, *rest = map(_decode, self._journal.records)
        self._journal.records.clear()
        if not isinstance(first, Snapshot) or first.run_id != self.config.run_id:
            raise JournalError(
                f"{self.config.server.state} belongs to another run: use another state folder"
            )
        state = rules.decode(first.state)
        if state.rules != self.config.rounds:
            raise JournalError(
                f"[rounds] changed since the run began: {_differences(state, self.config)}; put "
                "it back, or use another state folder"
            )
        for record in rest:
            assert isinstance(record, Happened)
            state, _ = rules.apply(state, record.event, record.now, round_seed(first.seed))
            self._now = max(self._now, record.now)
        return state, first.seed


def _publish_initial(store: CoordinatorBucket, path: Path) -> str:
    """Copy the owner's weights to `0/global`, in this federation's own layout."""
    with ModelFile(path) as model:
        arrays = model.arrays()
    written = store.new_global(0, layout_of(arrays))
    try:
        written.write_all(arrays)
        return store.publish_global(0, written)
    finally:
        written.abort()


def _differences(state: State, config: Federation) -> str:
    fields = (f.name for f in msgspec.structs.fields(config.rounds))
    changed = [
        f"{name} was {getattr(state.rules, name)}, is {getattr(config.rounds, name)}"
        for name in fields
        if getattr(state.rules, name) != getattr(config.rounds, name)
    ]
    return "; ".join(changed)


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
