"""A client at work: carries out what the client's machine decides.

One task owns the machine and feeds it events from a queue, in order; everything slow runs beside
it and comes back as an event: messages to the authority, transfers from peers, and (in one worker
thread, one thing at a time) everything that touches the model. Nothing a peer sends or fails to
send raises here: it is noted, and the run goes on.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from folkmoot.authority import Authority, SeesConnections, Unreachable
from folkmoot.client import events
from folkmoot.client.learner import Learner
from folkmoot.client.models import Models
from folkmoot.client.places import ANYWHERE, Places
from folkmoot.client.reach import Reach
from folkmoot.client.results import Results
from folkmoot.client.training import Training
from folkmoot.client.waiting import waits_for
from folkmoot.core.coordinator import Coordinator, Phase, Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.changes import same_work
from folkmoot.core.coordinator.client import machine
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.ledger import Result
from folkmoot.core.coordinator.client.state import ClientState
from folkmoot.core.identity import short
from folkmoot.exchange.peer import Misbehaved, Peer, PeerEvent
from folkmoot.host.clock import backoff
from folkmoot.host.event_log import Record
from folkmoot.host.tasks import end_tasks

Emit = Callable[[Record], None]


class RunReconfigured(Exception):
    """The owner changed what members compute with: build a learner for `run`, and go on."""

    def __init__(self, run: Run) -> None:
        super().__init__("the owner changed the run")
        self.run = run


# Waits between attempts to reach the authority, in seconds.
FIRST_WAIT, LONGEST_WAIT = 0.1, 1.0


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
        places: Places = ANYWHERE,
        holds: bytes = b"",
    ) -> None:
        """`holds` is the hash of the run's model, if the learner has it already."""
        self.peer = peer
        self._joined = run
        self.authority = authority
        self.learner = learner
        self.emit = emit
        self.client = ClientState(identity, run.run_id, peer.address)
        self.client.model_hash = holds
        self._queue: asyncio.Queue[c.Event] = asyncio.Queue()
        self._caught_up = asyncio.Event()  # with the state that was shown last
        self._tasks: set[asyncio.Task[Any]] = set()
        self._epoch_tasks: set[asyncio.Task[Any]] = set()
        self._no_storing = threading.Event()
        self._no_saving = threading.Event()
        self._waits = ""  # what we said last that we wait for
        self._logged: events.StateSeen | None = None
        self._account_before = (-1, 0, 0)  # epoch, bytes sent, least possible
        tell = self._queue.put_nowait
        self.reach = Reach(emit, lambda peers: tell(c.Unreachable(peers)))
        self.results = Results(peer, learner, tell, emit)
        self.training = Training(learner, self.results, tell, emit)
        self.models = Models(peer, learner, folder, self.training.work, emit, places, bool(holds))
        peer.on_event = self._noticed
        if isinstance(authority, SeesConnections):
            authority.on_hung_up = lambda peers: tell(c.HungUp(peers))

    # The loop.

    async def run(self) -> Coordinator:
        """Be a member until the run is finished; its last state. Raises `RunReconfigured`."""
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
            await self.authority.submit(m.Withdraw(self.client.id))
        except Unreachable as error:
            self.emit(events.AuthorityUnreachable(str(error)))

    async def _end(self, running: list[asyncio.Task[Any]]) -> None:
        self.training.give_up()
        self._no_storing.set()
        self._no_saving.set()
        await end_tasks([*running, *self._tasks])
        await self.training.close()
        self.models.unshare()

    async def _watch(self) -> Coordinator:
        async for state in self.authority.watch():
            if not same_work(self._joined, state.run):
                raise RunReconfigured(state.run)
            self._caught_up.clear()
            self._queue.put_nowait(c.Saw(state))
            if state.phase is Phase.Finished:
                self._log(state)
                return state
            # However fast states are told, one is kept here at a time.
            await self._caught_up.wait()
        raise AssertionError("an authority is watched without end")

    async def _decide(self) -> None:
        while True:
            event = await self._next_event()
            if isinstance(event, _Failed):
                raise event.error
            if isinstance(event, c.Saw):
                self._log(event.state)
            for effect in machine.apply(self.client, event, _now()):
                await self._do(effect)
            if isinstance(event, c.Saw):
                self._caught_up.set()

    async def _next_event(self) -> c.Event:
        """What comes next, or a tick when the machine has waited long enough."""
        now = _now()
        try:
            async with asyncio.timeout((machine.next_tick(self.client, now) - now) / 1000):
                return await self._queue.get()
        except TimeoutError:
            return c.Tick()

    def _log(self, state: Coordinator) -> None:
        waits = waits_for(state, self.client.id)
        if waits and waits != self._waits:
            self.emit(events.Doing(waits))
        self._waits = waits
        seen = events.StateSeen(state.phase, *state.turn, state.progress.step, state.active)
        if seen != self._logged:
            self._logged = seen
            self.emit(seen)

    def _noticed(self, event: PeerEvent) -> None:
        self.reach.noticed(event)
        if isinstance(event, Misbehaved):
            self.emit(events.Peers("misbehaved", f"{short(event.peer)}: {event.reason}"))

    # Carrying out.

    async def _do(self, effect: c.Effect) -> None:
        match effect:
            case c.Submit(message):
                self._begin(self._submit(message))
            case c.Connect(peers, places):
                # Before anything that follows: a model is loaded from those we are connected to.
                self.peer.make_room(self.learner.room(places))
                self.reach.members(dict(peers))
                await self.peer.members(dict(peers))
            case c.Load():
                self._begin(self._load(effect), of_epoch=True)
            case c.ShareModel(_, model_hash):
                self._begin(self.models.share(model_hash), of_epoch=True)
            case c.UnshareModel():
                self.models.unshare()
            case c.Learn():
                self._begin(self.training.learn(effect), of_epoch=True)
            case c.Train():
                self._begin(self.training.train(effect), of_epoch=True)
            case c.Abandon(epoch, height):
                self.training.give_up()
                self.emit(events.ShareAbandoned(epoch, height))
            case c.Audit():
                self._begin(self.training.audit(effect), of_epoch=True)
            case c.Evaluate():
                self._begin(self.training.evaluate(effect), of_epoch=True)
            case c.Tell(result):
                self._account(result, self.results.tell(result))
            case c.Fetch():
                self._begin(self.results.fetch(effect), of_epoch=True)
            case c.Ask():
                self._begin(self.results.ask(effect), of_epoch=True)
            case c.Probe(peers):
                for peer in peers:
                    self._begin(self.results.probe(peer), of_epoch=True)
            case c.Forget():
                self.results.forget(effect)
            case c.Upload():
                self._no_storing = threading.Event()
                store = partial(self.models.store, effect, self._no_storing.is_set)
                self._begin(self._upload(effect, store), of_epoch=True)
            case c.Save():
                self._no_saving = threading.Event()
                copying = self.models.copy()
                save = partial(self.models.store_copy, effect, self._no_saving.is_set, copying)
                self._begin(self._upload(effect, save), of_epoch=True)
            case c.StopSaving():
                self._no_saving.set()
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
        self.training.give_up()
        self._no_storing.set()
        self._no_saving.set()
        for task in self._epoch_tasks:
            task.cancel()
        self.results.clear()

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
        loaded = (
            c.NotLoaded(action.epoch) if model_hash is None else c.Loaded(action.epoch, model_hash)
        )
        self._queue.put_nowait(loaded)

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

    async def _upload(
        self, action: c.Upload | c.Save, store: Callable[[], Awaitable[str | None]]
    ) -> None:
        # Before ours counts: others may still be loading this one when it does.
        agreed = self.client.shown.checkpoint.location if self.client.shown else ""
        location = await store()
        if location is not None:
            self._queue.put_nowait(c.Uploaded(action.epoch, location, action.model_hash))
            self._begin(self.models.prune(action.epoch, agreed))


class _Failed(c.Event, frozen=True, tag=True):
    error: Any


def _now() -> int:
    return round(time.monotonic() * 1000)
