"""A client at work: carries out what the client's machine decides.

One task owns the machine and feeds it events from a queue, in order; everything slow runs beside
it and comes back as an event: messages to the authority, transfers from peers, and (in one worker
thread, one thing at a time) everything that touches the model. Nothing a peer sends or fails to
send raises here: it is noted, and the run goes on.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from folkmoot.authority import Authority, Unreachable
from folkmoot.client import events
from folkmoot.client.learner import Cancelled, Learner
from folkmoot.client.models import Models
from folkmoot.client.results import Results, number
from folkmoot.core.coordinator import Coordinator, Phase, Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.ledger import Result
from folkmoot.core.coordinator.client.machine import ClientMachine
from folkmoot.core.coordinator.state import Source
from folkmoot.core.identity import short
from folkmoot.exchange.peer import Misbehaved, Peer, PeerEvent
from folkmoot.host.clock import backoff
from folkmoot.host.event_log import Record
from folkmoot.learning.data.source import DataError

T = TypeVar("T")
Emit = Callable[[Record], None]

# How often a model is scored on held-out text, in steps, and on how much of it.
EVALUATE_EVERY = 10
EVALUATED_SEQUENCES = 16
# Waits between attempts to reach the authority, in seconds.
FIRST_WAIT, LONGEST_WAIT = 0.2, 5.0


class Member:
    """One client of one run. `run` returns when the run is finished; it raises on a bug only."""

    def __init__(
        self,
        run: Run,
        identity: bytes,
        authority: Authority,
        peer: Peer,
        learner: Learner,
        folder: Path,
        emit: Emit,
    ) -> None:
        self.peer = peer
        self.authority = authority
        self.learner = learner
        self.emit = emit
        self.machine = ClientMachine(identity, run.run_id, peer.address)
        self._queue: asyncio.Queue[c.Event] = asyncio.Queue()
        self._worker = ThreadPoolExecutor(1, "learner")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._epoch_tasks: set[asyncio.Task[Any]] = set()
        # What the worker is at; each is set when it should give up.
        self._no_training, self._no_storing = threading.Event(), threading.Event()
        self._evaluations: tuple[tuple[str, float], ...] = ()
        self._account_before = (-1, 0, 0)  # epoch, bytes sent, least possible
        self.results = Results(peer, learner, self.machine, self._queue.put_nowait, emit)
        self.models = Models(peer, learner, folder, self._work, emit)
        peer.on_event = self._noticed

    # The loop.

    async def run(self) -> Coordinator:
        """Be a member until the run is finished; its last state."""
        watching = asyncio.create_task(self._watch())
        loops = (self.results.listen(), self._decide())
        running = [watching, *(asyncio.create_task(loop) for loop in loops)]
        try:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            return watching.result()
        finally:
            await self._end(running)

    async def leave(self) -> None:
        """Tell the run that we go."""
        try:
            await self.authority.submit(m.Withdraw(self.machine.id))
        except Unreachable as error:
            self.emit(events.AuthorityUnreachable(str(error)))

    async def _end(self, running: list[asyncio.Task[Any]]) -> None:
        self._no_training.set()
        self._no_storing.set()
        for task in (*running, *self._tasks):
            task.cancel()
        await asyncio.gather(*running, *self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._worker.shutdown)

    async def _watch(self) -> Coordinator:
        async for state in self.authority.watch():
            self._queue.put_nowait(c.Saw(state))
            if state.phase is Phase.Finished:
                self.emit(_seen(state))
                return state
        raise AssertionError("an authority is watched without end")

    async def _decide(self) -> None:
        while True:
            event = await self._next_event()
            if isinstance(event, _Failed):
                raise event.error
            if isinstance(event, c.Saw):
                await self._saw(event.state)
            for action in self.machine.apply(event, _now()):
                self._do(action)

    async def _next_event(self) -> c.Event:
        """What comes next, or an alarm when the machine has waited long enough."""
        now = _now()
        try:
            async with asyncio.timeout(max(self.machine.next_alarm(now) - now, 0) / 1000):
                return await self._queue.get()
        except TimeoutError:
            return c.Alarm()

    async def _saw(self, state: Coordinator) -> None:
        before = self.machine.state
        if before is not None and _stand(before) == _stand(state):
            return
        self.emit(_seen(state))
        clients = [x for x in state.epoch.clients if not x.left and x.id != self.machine.id]
        self.peer.make_room(self.learner.room(len(state.epoch.clients)))
        await self.peer.members({x.id: x.address for x in clients})
        if state.epoch.rounds:
            oldest = state.epoch.rounds[0].height
            self.results.forget(number(state.epoch_number, oldest))
            if oldest > 0:
                self.models.unshare()  # nobody can come to this epoch any more

    def _noticed(self, event: PeerEvent) -> None:
        if isinstance(event, Misbehaved):
            self.emit(events.Peers("misbehaved", f"{short(event.peer)}: {event.reason}"))

    # Carrying out.

    def _do(self, action: c.Action) -> None:
        match action:
            case c.Submit(message):
                self._begin(self._submit(message))
            case c.Load():
                self._begin(self._load(action), of_epoch=True)
            case c.Learn():
                # The bytes are taken now: by the time it begins they may have been forgotten.
                payloads = self.results.payloads(action.results)
                self._begin(self._learn(action, payloads), of_epoch=True)
            case c.Train():
                self._no_training = threading.Event()
                self._begin(self._train(action, self._no_training.is_set), of_epoch=True)
            case c.Tell(result):
                self._account(result, self.results.tell(result))
            case c.Fetch(result):
                self._begin(self.results.fetch(result), of_epoch=True)
            case c.Ask():
                self._begin(self.results.ask(action), of_epoch=True)
            case c.Upload():
                self._no_storing = threading.Event()
                self._begin(self._upload(action, self._no_storing.is_set), of_epoch=True)
            case c.Abandon(epoch, height):
                self._no_training.set()
                self.emit(events.ShareAbandoned(epoch, height))
            case c.Stop():
                self._stop()

    def _begin(self, work: Coroutine[Any, Any, None], of_epoch: bool = False) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        if of_epoch:
            self._epoch_tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._epoch_tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # A bug, not a peer: end the client with its traceback rather than go on half-dead.
            self._queue.put_nowait(_Failed(task.exception()))

    def _stop(self) -> None:
        self._no_training.set()
        self._no_storing.set()
        for task in self._epoch_tasks:
            task.cancel()
        self.results.clear()
        self.models.unshare()

    async def _work(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run in the worker thread; it finishes there even when nobody waits any more."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, function, *arguments)

    async def _submit(self, message: m.AnyEvent) -> None:
        delays = backoff(FIRST_WAIT, LONGEST_WAIT)
        while True:
            try:
                refused = await self.authority.submit(message)
                break
            except Unreachable as error:
                self.emit(events.AuthorityUnreachable(str(error)))
                if isinstance(message, m.HealthCheck):
                    return  # the next one says as much
                await asyncio.sleep(next(delays))
        if refused is not None:
            self.emit(events.MessageRefused(type(message).__name__, refused.code))
            self._queue.put_nowait(c.WasRefused(message, refused))

    async def _load(self, action: c.Load) -> None:
        model_hash = await self.models.load(action)
        if model_hash is None:
            self._queue.put_nowait(c.NotLoaded(action.epoch))
            return
        self._queue.put_nowait(c.Loaded(action.epoch, model_hash))
        state = self.machine.state
        newcomers = {x.id for x in state.epoch.clients} - set(action.holders) if state else set()
        if action.checkpoint.source is Source.P2P and newcomers - {self.machine.id}:
            # The worker takes this copy before anything that follows from `Loaded`.
            await self.models.share(model_hash)

    async def _learn(self, action: c.Learn, payloads: list[bytes]) -> None:
        began = time.perf_counter()
        model_hash = await self._work(self.learner.learn, payloads, action.step)
        seconds = time.perf_counter() - began
        self.emit(
            events.RoundLearnt(
                action.epoch, action.height, len(payloads), model_hash.hex(), seconds
            )
        )
        self._queue.put_nowait(c.Learnt(action.epoch, action.height, model_hash))

    async def _train(self, action: c.Train, stopped: Callable[[], bool]) -> None:
        began = time.perf_counter()
        try:
            worked = await self._work(self.learner.train, action.step, action.share, stopped)
        except Cancelled:
            return
        except (FloatingPointError, DataError, OSError, Unreachable) as error:
            self.emit(events.ShareFailed(action.epoch, action.height, str(error)))
            self._queue.put_nowait(c.NotTrained(action.epoch, action.height))
            return
        seconds = time.perf_counter() - began
        result = self.results.made(action, worked.payload)
        samples, speed = sum(len(span) for span in action.share), worked.tokens_per_second
        where = (action.epoch, action.height, action.step)
        self.emit(
            events.ShareTrained(*where, samples, worked.loss, seconds, speed, len(worked.payload))
        )
        metadata = m.WitnessMetadata(float(speed), 0.0, worked.loss, self._evaluations)
        self._queue.put_nowait(c.Trained(result, speed, metadata))
        if action.step % EVALUATE_EVERY == 0 and self._turn(action.step):
            await self._evaluate(action, stopped)

    def _turn(self, step: int) -> bool:
        """Whether it is ours to evaluate: one client at a time is enough, the models are equal."""
        state = self.machine.state
        if state is None or (place := state.find(self.machine.id)) is None:
            return False
        return step // EVALUATE_EVERY % len(state.epoch.clients) == place

    async def _evaluate(self, action: c.Train, stopped: Callable[[], bool]) -> None:
        """Score held-out text while the others' results are on their way."""
        score = await self._work(self.learner.evaluate, EVALUATED_SEQUENCES, stopped)
        if score is not None:
            self._evaluations = (("held_out", score.loss),)
            self.emit(events.Evaluated(action.epoch, action.height, action.step, score.loss))

    def _account(self, result: Result, due: int) -> None:
        """Say what the network carried since the last round of this epoch."""
        sent, received = self.authority.traffic()
        for traffic in self.peer.traffic().values():
            sent += traffic.sent
            received += traffic.received
        epoch, before, owed = self._account_before
        known = (sent - before, owed) if epoch == result.epoch else (0, 0)
        self._account_before = (result.epoch, sent, due)
        self.emit(events.Traffic(result.epoch, result.height, sent, received, *known))

    async def _upload(self, action: c.Upload, stopped: Callable[[], bool]) -> None:
        location = await self.models.store(action, stopped)
        if location is not None:
            self._queue.put_nowait(c.Uploaded(action.epoch, location))


class _Failed(c.Event, frozen=True):
    error: Any


def _stand(state: Coordinator) -> tuple[Any, ...]:
    """What a member goes by; also the round, as a RoundWitness that is over at once is not seen."""
    height = state.round.height if state.epoch.rounds else -1
    return state.phase, state.epoch_number, height, state.epoch.absent


def _seen(state: Coordinator) -> events.StateSeen:
    height = state.round.height if state.epoch.rounds else -1
    step = state.progress.step
    return events.StateSeen(state.phase, state.epoch_number, height, step, state.active)


def _now() -> int:
    return round(time.monotonic() * 1000)
