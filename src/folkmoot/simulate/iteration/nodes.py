"""A process of a rank with a shell for worlds, and the store that all of them talk to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from folkmoot.core.iteration import Heartbeats, keys
from folkmoot.core.iteration import messages as m
from folkmoot.core.machine import Effect
from folkmoot.simulate.coordinator import CoordinatorNode
from folkmoot.simulate.iteration.audit import IterationAudit
from folkmoot.simulate.iteration.job import (
    Answers,
    Beat,
    Begin,
    Bury,
    Clean,
    Hear,
    Perform,
    To,
)
from folkmoot.simulate.loop import Loop
from folkmoot.simulate.network import Network
from folkmoot.simulate.node import Node

TIMEOUT = 700  # milliseconds until an answer counts as lost, and the request is repeated
TORN = 0.01  # how often a connection breaks between the parts of a request


class StoreNode(CoordinatorNode):
    """Keeps everything when it dies, as etcd does; who waits for a key then has to ask again."""

    audit: IterationAudit

    def __init__(self, loop: Loop, network: Network, audit: IterationAudit) -> None:
        super().__init__(loop, network, audit)
        self._waiting: dict[str, list[Any]] = {}

    def forget(self) -> None:
        super().forget()
        self._waiting = {}

    def perform(self, process: str, number: int) -> bool | None:
        """True; None when the connection broke, perhaps in the middle of a request."""
        request = self.audit.state.processes[process].requests[number]
        if self.loop.chance(TORN) and isinstance(request, m.Arrive | m.Decide):
            self.submit(Perform(process, number, torn=True))
            return None
        self.submit(Perform(process, number))
        there = self.audit.state.store
        for wakeup in filter(there.__contains__, _wakeups(request)):
            for node, name, at, hear in self._waiting.pop(wakeup, ()):
                self.submit(Perform(name, at))
                self.network.send(self, node, hear, True)
        return True

    def wait(self, node: Node, process: str, number: int, hear: Any) -> None:
        """Answer as soon as there is a value."""
        request = self.audit.state.processes[process].requests[number]
        assert isinstance(request, m.Wait)
        if request.key in self.audit.state.store:
            self.perform(process, number)
            self.network.send(self, node, hear, True)
        else:
            waiting = (node, process, number, hear)
            self._waiting.setdefault(request.key, []).append(waiting)

    def beat(self, process: str) -> tuple[bool, tuple[bytes | None, ...]]:
        """Whether the heartbeat is still the process's own; and those of all ranks."""
        (answers,) = self.submit(Beat(process))
        assert isinstance(answers, Answers)
        (found,), job = answers.values, self.audit.state
        everybody = tuple(job.store.get(keys.heartbeat(rank)) for rank in range(job.rules.world))
        return found == job.processes[process].heartbeat, everybody


def _wakeups(request: m.Request) -> tuple[str, ...]:
    """The keys that may be there after it, for those who wait."""
    match request:
        case m.Set(key):
            return (key,)
        case m.Decide(wakeups=wakeups):
            return wakeups
    return ()


class RankNode(Node):
    """A launcher that starts its rank again whenever it died, and the process it started last."""

    def __init__(
        self, loop: Loop, network: Network, store: StoreNode, rank: int, name: str
    ) -> None:
        super().__init__(loop)
        self.network, self.store, self.rank, self.name = network, store, rank, name
        self.audit = store.audit
        self.rules = self.audit.config
        self.skew = loop.random.choice((0, 7_000, 3_600_000))  # of its clock, for ever
        self.slowness = loop.random.choice((1, 1, 1, 4))
        self.fenced = False  # whether another process took the rank: then it stays down
        self.on_win: Callable[[RankNode], None] | None = None  # what strikes it when it wins next
        self.starts = self.progress = 0

    @property
    def process(self) -> str:
        return f"{self.name}.{self.starts}"

    @property
    def alive(self) -> bool:
        return self.up and not self.fenced

    def start(self) -> None:
        if not self.alive:
            return
        self.life += 1  # of the process before, if there is one, nothing is left
        self.starts += 1
        self.progress = 0
        self.observer = Heartbeats(self.rules.heartbeat_timeout)
        self._submit(Begin(self.process, self.rank))

    def forget(self) -> None:
        """It died. Often its launcher notices, and says so."""
        if self.starts and self.loop.chance(0.5):
            late = self.loop.random.uniform(0, 400)
            self.loop.after(late, self._send, self.store.submit, Bury(self.process))

    def end(self) -> None:
        """It is gone without a word, and nobody starts it again."""
        self.fenced, self.up = True, False
        self.life += 1

    # What its machine says.

    def tell(self, event: m.Finished | m.Silent | m.Beaten) -> None:
        self._submit(To(self.process, event))

    def _submit(self, event: Any) -> None:
        now = self.loop.now + self.skew
        for effect in self.audit.submit(now, self.loop.random.getrandbits(64), event):
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case m.Decide() if self.on_win:
                strike, self.on_win, number = self.on_win, None, self._open()
                self._send(self.store.submit, Perform(self.process, number, torn=True))
                strike(self)
                if self.up:
                    self.after(0, self._ask, number)
            case m.Wait(ms=ms):
                self._wait(self._open(), ms)
            case _ if isinstance(effect, m.Request):
                self._ask(self._open())
            case m.Born():
                self._beat()
            case m.Advanced(record):
                self.progress = max(self.progress, record.progress)
                time = self.loop.random.uniform(20, 400) * self.slowness
                self.after(time, self._finish, self.progress + 1)
            case m.Housekeeping():
                self._send(self.store.submit, Clean(self.process))
            case m.Stopped():
                self.fenced = True
                self.life += 1  # its timers end

    def _finish(self, progress: int) -> None:
        self.progress = progress
        self.tell(m.Finished(progress))

    def _open(self) -> int:
        """The number of its open request."""
        return len(self.audit.state.processes[self.process].requests) - 1

    def _ask(self, number: int) -> None:
        """Ask the store, again and again until it answers."""
        hear = partial(self._answered, number, self.life)
        self._call(hear, self.store.perform, self.process, number)

    def _answered(self, number: int, life: int, answer: Any) -> None:
        if life != self.life:
            return
        if answer is None:
            self._ask(number)
        else:
            self._submit(Hear(self.process, number))

    def _wait(self, number: int, ms: int) -> None:
        hear = partial(self._woken, number, self.life)
        self._send(self.store.wait, self, self.process, number, hear)
        self.after(ms, hear, False)

    def _woken(self, number: int, life: int, found: bool) -> None:
        if life == self.life:
            self._submit(Hear(self.process, number, not found))

    def _send(self, action: Any, *args: Any) -> None:
        self.network.send(self, self.store, action, *args)

    def _call(self, then: Any, action: Any, *args: Any) -> None:
        self.network.call(self, self.store, then, TIMEOUT, action, *args)

    # Its heartbeats, on a connection of their own.

    def _beat(self) -> None:
        """Move the heartbeat: one request at a time, as on any connection."""
        self._call(partial(self._moved, self.life), self.store.beat, self.process)

    def _moved(self, life: int, answer: tuple[bool, tuple[bytes | None, ...]] | None) -> None:
        if life != self.life:
            return
        if answer is None:
            self._beat()
        elif answer[0]:
            self.after(self.rules.heartbeat_interval, self._beat)
            self._look(answer[1])
        else:
            self.tell(m.Beaten(answer[1][self.rank]))

    def _look(self, values: tuple[bytes | None, ...]) -> None:
        now = self.loop.now + self.skew
        self.observer.look(values, now)
        silent = self.observer.silent(now)
        if silent != self.audit.state.processes[self.process].state.silent:
            self.tell(m.Silent(silent))
