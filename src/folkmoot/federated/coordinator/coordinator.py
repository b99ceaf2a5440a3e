"""The coordinator without its wire: the machine of `core.federation`, a journal, a bucket.

The machine is driven by `host.durable`: a coordinator that is killed at any moment and started
again finds itself in the same round with the same updates, and goes on; nothing that must happen
once happens twice, and the next global model has the same bits.

All methods run on one event loop. Reading, checking and combining models runs on worker threads.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import asdict, replace

from folkmoot.core import federation as rules
from folkmoot.core.federation import messages as m
from folkmoot.core.federation.state import Delivery, State, UpperRound
from folkmoot.core.liveness import Liveness
from folkmoot.exchange.bucket import Bucket, BucketError
from folkmoot.federated.aggregate.spans import CombineFailed
from folkmoot.federated.coordinator import events
from folkmoot.federated.coordinator.bucket import CoordinatorBucket
from folkmoot.federated.coordinator.config import Federation
from folkmoot.federated.coordinator.early import EarlySums
from folkmoot.federated.coordinator.evaluation import (
    CentralEvaluation,
    ReportedMetrics,
    keep_best,
)
from folkmoot.federated.coordinator.metrics import Meters
from folkmoot.federated.coordinator.secure_rounds import SecureRounds
from folkmoot.federated.coordinator.sums import Summed, write_sum
from folkmoot.federated.coordinator.updates import Made, combine, culprits, lost
from folkmoot.federated.model_file.hashing_writer import HashingWriter
from folkmoot.federated.model_file.layout import Array, BadModel, layout_of
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.secure.masks import Mask
from folkmoot.host.clock import Clock, backoff, rising_clock, wall_clock
from folkmoot.host.durable import Durable, Step
from folkmoot.host.event_log import EventLog
from folkmoot.host.journal import Journal, JournalError
from folkmoot.host.signing import Identity, load_secret
from folkmoot.host.tasks import end_tasks

logger = logging.getLogger(__name__)
T = TypeVar("T")
COMPACT_BYTES = 128 * 1024
WORKERS = 2
#: Where updates have to be downloaded, which is mostly waiting.
REMOTE_WORKERS = 4


def round_seed(secret: bytes) -> int:
    """What the machine's choices come from; it tells nothing about the secret."""
    return int.from_bytes(sha256(b"folkmoot rounds" + secret).digest()[:8], "little")


class Coordinator:
    def __init__(
        self,
        config: Federation,
        *,
        clock: Clock = wall_clock,
        journal: Callable[[Path], Journal] = Journal,
        meters: Meters | None = None,
        on_sum: Callable[[Summed], None] | None = None,
    ) -> None:
        """With `on_sum` it is an aggregator's: rounds are called from above, and make sums."""
        self.config = config
        self._on_sum = on_sum
        folder = Path(config.server.state)
        carried = config.bucket.carried
        place = str(folder / "bucket") if carried else config.bucket.url
        bucket = Bucket(place, config.bucket.options)
        self.store = CoordinatorBucket(bucket, folder, config.bucket.max_object, carried=carried)
        self.meters = meters or Meters()
        self.liveness = Liveness(config.rounds.expiry_ms)
        workers = REMOTE_WORKERS if bucket.folder is None else WORKERS
        self.workers = ThreadPoolExecutor(workers, "folkmoot-worker")
        #: Metrics of evaluations, which no decision depends on.
        self.reported = ReportedMetrics()
        central = config.evaluation.central
        self._central = CentralEvaluation(central) if central else None
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._together: list[tuple[m.AnyEvent, asyncio.Future[tuple[m.Effect, ...]]]] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._serving: asyncio.Task[None] | None = None
        self._tidying = asyncio.Lock()
        self.finished = asyncio.Event()
        #: Set when as many have been connected as a round needs.
        self.staffed = asyncio.Event()
        self.failure: BaseException | None = None
        #: Differential privacy's noise comes from it: nobody else may know it.
        self.secret = load_secret(folder / "secret", config.seed)
        #: Seals our answers; participants know us by it.
        self.identity = Identity.load(folder / "coordinator.key")
        self._seed = round_seed(self.secret)
        #: Is given the next model and those who will be called to it, before it is durable.
        self.show_next: Callable[[int, tuple[str, ...], HashingWriter], None] = _show_nobody
        self._durable: Durable[State] = Durable(
            rules,
            journal(folder / "journal"),
            config.run_id,
            self._create,
            self._act,
            clock=lambda last: rising_clock(last, clock),
            draw=lambda: self._seed,
            compact_bytes=COMPACT_BYTES,
        )
        self.resumed, self.now = self._durable.resumed, self._durable.now
        self.log = EventLog(folder / "events.jsonl", self.now)
        self.secure = SecureRounds(
            config.run_id, config.secure, lambda: self.state, self.submit, self.log.write, folder
        )
        self.early = EarlySums(config, self.store, lambda: self.state)
        if self.state.rules != config.rounds:
            self._durable.close()
            raise JournalError(
                f"[rounds] changed since the run began: {_differences(self.state, config)}; put "
                "it back, or use another state folder"
            )

    @property
    def state(self) -> State:
        return self._durable.state

    def _create(self) -> State:
        if self._on_sum is not None:
            return rules.create(self.config.rounds, region=True)
        digest = ""
        if self.config.initial_weights:
            digest = _publish_initial(self.store, Path(self.config.initial_weights))
        return rules.create(self.config.rounds, initial=not digest, global_digest=digest)

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
        if self.state.phase is rules.Phase.FINISHED:
            self.finished.set()
        self._note_staff()
        self.meters.observe(self.state)
        await self._keep_best()
        serving = self._durable.serve(self._due, self._on_due)
        self._serving = asyncio.get_running_loop().create_task(serving)
        self._serving.add_done_callback(self._failed)

    async def stop(self) -> None:
        """Release everything; the journal has all that a later start needs."""
        await end_tasks([*self._closing, *filter(None, [self._serving])])
        for waiting in self._waiting.values():
            waiting.cancel()
        await asyncio.to_thread(self.early.close)
        await asyncio.to_thread(self.workers.shutdown, cancel_futures=True)
        self.log.write(events.Stopped(self.state.phase, self.state.round))
        self.log.close()
        self._durable.close()

    # Events.

    def submit(self, event: m.AnyEvent) -> tuple[m.Effect, ...]:
        """Decide, persist, act."""
        return self._durable.take(event).effects

    async def submit_together(self, event: m.AnyEvent) -> tuple[m.Effect, ...]:
        """Decide, persist, act, in one record with all that is submitted in this moment.

        Deliveries come in crowds, and what a small round waits for is mostly the disk.
        """
        loop = asyncio.get_running_loop()
        if not self._together:
            loop.call_soon(self._submit_crowd)
        answer: asyncio.Future[tuple[m.Effect, ...]] = loop.create_future()
        self._together.append((event, answer))
        return await answer

    def _submit_crowd(self) -> None:
        crowd, self._together = self._together, []
        try:
            outcomes = self._durable.take_all(event for event, _ in crowd)
        except Exception as error:  # theirs to tell, each to its own
            for _, answer in crowd:
                if not answer.done():
                    answer.set_exception(error)
            return
        for outcome, (_, answer) in zip(outcomes, crowd, strict=True):
            if not answer.done():
                answer.set_result(outcome.effects)

    def heard(self, id: str) -> None:
        """A participant gave a sign of life."""
        if id in self.state.members and self.state.phase is not rules.Phase.FINISHED:
            first = self.liveness.next_expiry() is None
            self.liveness.heard(id, self.now())
            if first:
                self._durable.wake()

    async def changed(self, id: str, patience: float) -> bool:
        """Wait until what `id` would be told may have changed, or `patience` seconds.

        False when it asked again meanwhile: of two that wait for one participant the earlier has
        to be answered, or they would wake each other for ever.
        """
        if earlier := self._waiting.get(id):
            _wake(earlier)
        mine = self._waiting[id] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait_for(mine, patience)
        except TimeoutError:
            return True
        finally:
            latest = self._waiting.get(id) is mine
            if latest:
                del self._waiting[id]
        return latest

    def _act(self, step: Step) -> None:
        if step.after is step.before:
            return
        for effect in step.effects:
            self.log.write(effect)
            if isinstance(effect, m.Joined):
                self.liveness.heard(effect.id, step.now)
            elif isinstance(effect, m.Left):
                self.liveness.forget([effect.id])
            elif isinstance(effect, m.Aggregate):
                self._aggregate(effect.keys)
        if self.state.phase is rules.Phase.FINISHED:
            self.finished.set()
        self._note_staff()
        self.secure.observe(step.effects)
        self._wake_changed(step)
        self.meters.observe(self.state)

    def _note_staff(self) -> None:
        if self.state.closing or len(self.state.members) >= self.state.rules.min_connected:
            self.staffed.set()

    def _wake_changed(self, step: Step) -> None:
        """Answer held heartbeats; a delivery concerns only its sender, and there are many."""
        waiting = list(self._waiting)
        if _shown(step.before) == _shown(step.after):
            waiting = [getattr(event, "id", "") for event in step.events]
        for id in waiting:
            if id in self._waiting:
                _wake(self._waiting[id])

    # Time.

    def _due(self) -> int | None:
        """When somebody may have expired or the deadline passes, whichever is first."""
        if self.state.phase is rules.Phase.FINISHED:
            return None
        times = (self.liveness.next_expiry(), rules.next_tick(self.state, self.now()))
        return min((t for t in times if t is not None), default=None)

    def _on_due(self) -> None:
        lost = self.liveness.expired(self.now())
        try:
            if lost:
                self.submit(m.Dropped(lost))
            self.submit(m.Tick())
        except OSError:
            # Nothing was decided, since nothing could be kept: they are lost another time.
            for id in lost:
                self.liveness.heard(id, self.now())
            raise

    # Closing a round.

    def _aggregate(self, keys: tuple[str, ...]) -> None:
        deliveries = [self.state.deliveries[key] for key in keys]
        task = asyncio.get_running_loop().create_task(self._close(deliveries))
        self._closing.add(task)
        task.add_done_callback(self._failed)

    def _failed(self, task: asyncio.Task[None]) -> None:
        """What failed in a way we do not know stops the coordinator, loudly."""
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.failure = error
            self.finished.set()

    async def _close(self, deliveries: list[Delivery]) -> None:
        """Make the next global model.

        A failure of the disk or the bucket is tried again. What fails for the updates' own sake
        would fail for ever, so it is never tried again with the same ones.
        """
        round_ = self.state.round
        for delay in backoff(1.0, 60.0):
            started, residue = time.perf_counter(), None
            if self.secure.applies():
                residue = await self.secure.unmask(deliveries)
                if residue is None:
                    return
            try:
                if self._on_sum is not None:
                    await self._sum(self._on_sum, round_, deliveries, residue)
                    return
                done = await self._combined(deliveries, residue)
                seconds = time.perf_counter() - started
                self.submit(m.Written(round_, done.digest, await self._central_loss(round_ + 1)))
                break
            except CombineFailed as failed:
                if not await self._took_out(deliveries, failed):
                    raise
                return
            except (BucketError, OSError, BadModel) as error:
                self.log.write(events.AggregationFailed(round_, str(error), delay))
                if await self._ask_again(deliveries):
                    return
                await asyncio.sleep(delay)
        count, figures = len(deliveries), dict(done.figures)
        self.log.write(events.Aggregated(round_, count, seconds, done.digest, figures))
        self.meters.aggregation.observe(seconds)
        if found := self.reported.summary(round_):
            self.log.write(found)
        await self._keep_best()
        await self._tidy(round_, deliveries)

    async def _combined(self, deliveries: list[Delivery], residue: list[Mask] | None) -> Made:
        if residue is None:
            show = partial(self.show_next, self.state.round + 1, self._called_next())
            if (early := await self.early.made_of(deliveries, show)) is not None:
                return early
        return await self.run(
            combine, self.config, self.store, self.state, self.secret, deliveries, residue
        )

    def _called_next(self) -> tuple[str, ...]:
        """Who is called to the next round, if nothing happens before: others need not see it.

        The round is closed with these updates, which is on the disk, so the model is certain; it
        counts when it is on the disk itself.
        """
        if self._central is not None:  # whose loss decides whether there is a next round
            return ()
        written = m.Written(self.state.round, "")
        after = rules.apply(self.state, written, self.now(), self._seed).state
        return after.selected if after.phase is rules.Phase.ROUND else ()

    async def _sum(
        self,
        on_sum: Callable[[Summed], None],
        round_: int,
        deliveries: list[Delivery],
        residue: list[Mask] | None,
    ) -> None:
        """Make the sum for the coordinator above. The round lasts until that one goes on."""
        started = time.perf_counter()
        made = await self.run(write_sum, self.config, self.store, self.state, deliveries, residue)
        seconds = time.perf_counter() - started
        self.log.write(events.SumMade(round_, made.participants, made.samples, seconds))
        self.meters.aggregation.observe(seconds)
        on_sum(made)

    async def take_up(self, above: UpperRound, model: Mapping[str, Array]) -> None:
        """Go on with this round of the coordinator above, whatever became of the last one."""
        digest = await self.run(_publish, self.store, above.round, model)
        await end_tasks(list(self._closing))
        closed, used = self.state.round, list(self.state.deliveries.values())
        self.submit(m.Called(replace(above, digest=digest)))
        if used or closed != above.round:
            await self._tidy(closed, used)

    async def _central_loss(self, round_: int) -> float | None:
        """What the owner's own function finds of the model just made."""
        if self._central is None:
            return None
        loss, metrics = await self.run(self._central, self.store.global_target(round_))
        self.log.write(events.CentrallyEvaluated(round_, loss, dict(metrics)))
        return loss

    async def _keep_best(self) -> None:
        """Keep the best model, whatever is pruned; also when a crash came between."""
        best, folder = self.state.best, Path(self.config.server.state)
        if best is None or (folder / "best" / f"{best.round}.safetensors").exists():
            return
        try:
            model = await self.run(self.store.global_path, best.round)
            await self.run(keep_best, model, folder, best.round)
        except (BucketError, OSError) as error:
            logger.warning("the best model, of round %d, is not kept: %s", best.round, error)

    async def _took_out(self, deliveries: list[Delivery], failed: CombineFailed) -> bool:
        """Go on without the update that spoils the model; whether there is one to blame."""
        if self.secure.applies():
            return False
        bad = await self.run(culprits, self.config, self.store, self.state, deliveries, failed)
        for key in bad:
            delivery = self.state.deliveries[key]
            self.log.write(events.UpdateSpoiled(delivery.id, delivery.round, str(failed)))
        self.submit(m.Spoiled(tuple(bad)))
        return bool(bad)

    async def _ask_again(self, deliveries: list[Delivery]) -> bool:
        """Give up updates that cannot be read back; whether there were any."""
        gone = await self.run(lost, self.store, deliveries)
        if gone:
            self.submit(m.Lost(tuple(gone)))
        return bool(gone)

    async def _tidy(self, closed: int, used: list[Delivery]) -> None:
        """Forget what the closed round needed; what is left over does no harm."""
        try:
            async with self._tidying:
                if count := await self.run(self._tidy_files, closed, used):
                    oldest = closed + 2 - self.config.bucket.keep_rounds
                    self.log.write(events.Pruned(oldest, count))
        except (BucketError, OSError) as error:
            logger.warning("round %d is closed but not tidied up: %s", closed, error)

    def _tidy_files(self, closed: int, used: list[Delivery]) -> int:
        """On a worker thread; how many objects of old rounds were pruned."""
        if self.config.bucket.keep_updates:
            self.store.archive(used)
        else:
            self.store.consume(used)
        self.store.forget_rounds(closed - self.config.rounds.max_staleness)
        self.store.memory_path(closed).unlink(missing_ok=True)
        keep = self.config.bucket.keep_rounds
        return self.store.prune(closed + 2 - keep) if keep else 0

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """On a worker thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.workers, function, *arguments)


def _publish_initial(store: CoordinatorBucket, path: Path) -> str:
    """Copy the owner's weights to `0/global`, in this federation's own layout."""
    with ModelFile(path) as model:
        return _publish(store, 0, model.arrays())


def _publish(store: CoordinatorBucket, round_: int, arrays: Mapping[str, Array]) -> str:
    """Write a global model that was made elsewhere; its digest."""
    with closing(store.new_global(round_, layout_of(arrays))) as written:
        written.write_all(arrays)
        return store.publish_global(round_, written)


def _differences(state: State, config: Federation) -> str:
    before, now = asdict(state.rules), asdict(config.rounds)
    changed = [name for name in now if now[name] != before[name]]
    return "; ".join(f"{name} was {before[name]}, is {now[name]}" for name in changed)


def _shown(state: State) -> tuple[Any, ...]:
    """What every participant goes by."""
    return state.phase, state.round, state.selected, bool(state.closing)


def _show_nobody(round_: int, ids: tuple[str, ...], model: HashingWriter) -> None:
    """Of a coordinator that carries no weights."""


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
