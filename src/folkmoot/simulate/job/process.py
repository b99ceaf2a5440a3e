"""A process of an actor: it gets ready, works when it is told to, and reports until it is answered.

It can die, hang, or raise; whoever worked with it may then raise as well. One that is told that it
does not count ends itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from folkmoot.core.job import messages as m
from folkmoot.core.job.state import is_sub_master, role_of
from folkmoot.core.machine import Refused
from folkmoot.simulate.job.audit import Suffered

if TYPE_CHECKING:
    from folkmoot.simulate.job.host import HostNode

TIMEOUT = 1_000
BEAT = 1_000
NOT_COUNTED = (m.Reason.UnknownActor, m.Reason.OldIncarnation, m.Reason.Gone)


class SimulatedProcess:
    def __init__(self, host: HostNode, actor: str, incarnation: int) -> None:
        self.host, self.actor, self.incarnation = host, actor, incarnation
        self.alive, self.hung, self.erred = True, False, False
        self.generation = 0
        self.loop = host.loop
        self.role = role_of(actor)
        self.is_sub_master = is_sub_master(actor)
        self.spec = host.master.audit.config.roles[self.role]
        self._after(self.loop.random.uniform(20, 900), self._ready)
        self._beat()

    # What it is told.

    def start(self, generation: int, world: tuple[str, ...]) -> None:
        if self.hung or self.erred or generation <= self.generation:
            return
        first, self.generation = self.generation == 0, generation
        running = m.Report(self.actor, self.incarnation, "RUNNING", generation)
        self._after(self.loop.random.uniform(1, 800), self.tell, running)
        if self.spec.driver and not self.is_sub_master and first:
            self._after(self.loop.random.choice((50, 3_000, 6_000, 9_000, 9_000)), self._finish)

    def check(self, role: str, generation: int, world: tuple[str, ...]) -> None:
        random = self.loop.random
        bad = (random.choice(world),) if self.loop.chance(self.host.unfit) else ()
        verdict = m.ChildrenChecked(role, self.incarnation, generation, bad, "slow", self.loop.now)
        self._after(random.uniform(20, 1_500), self.tell, verdict)

    def stop(self) -> None:
        if not self.hung and not self.loop.chance(0.1):
            self._after(self.loop.random.uniform(1, 1_000), self._exit)

    # What goes wrong.

    def die(self) -> None:
        if self.alive:
            self.host.end(self, "SIGKILL")
            self._drag_others_down()

    def hang(self) -> None:
        self.hung = True

    def err(self) -> None:
        """The user's code raises; sometimes that ends the process."""
        if self.hung or self.erred or not self.alive:
            return
        self.erred = True
        self.tell(m.Raised(self.actor, self.incarnation, "ValueError", self.loop.now))
        self._drag_others_down()
        if self.loop.chance(0.5):
            self._after(self.loop.random.uniform(1, 300), self._exit)

    def _drag_others_down(self) -> None:
        random = self.loop.random
        for host in self.host.hosts:
            for other in list(host.processes.values()):
                near = self.loop.chance(0.7 if other.role == self.role else 0.2)
                if near and other is not self and other.generation:
                    other._after(random.uniform(1, 500), other._suffer, self)

    def _suffer(self, cause: SimulatedProcess) -> None:
        if not self.erred:
            whose = (cause.actor, cause.incarnation)
            self.host.master.audit.tell(Suffered(self.actor, self.incarnation, *whose))
            self.erred = True
            self.tell(m.Raised(self.actor, self.incarnation, "PeerLost", self.loop.now))

    # What it does.

    def tell(self, event: Any) -> None:
        """Say it until it is answered."""
        master = self.host.master

        def hear(answer: tuple[m.Effect, ...] | None) -> None:
            if not self.alive or self.hung:
                return
            if answer is None:
                self.tell(event)
            elif isinstance(answer, tuple):
                refused = next((e for e in answer if isinstance(e, Refused)), None)
                if refused and refused.code in NOT_COUNTED:
                    self._exit()

        self.host.network.call(self.host, master, hear, TIMEOUT, master.submit, event)

    def _ready(self) -> None:
        self.tell(m.ActorReady(self.actor, self.incarnation, self.host.name))

    def _finish(self) -> None:
        if not self.erred:
            self.tell(m.Report(self.actor, self.incarnation, "FINISH", self.generation))

    def _exit(self) -> None:
        self.host.end(self, "exit")

    def _beat(self) -> None:
        master = self.host.master

        def hear(counts: bool | None) -> None:
            if counts is False and self.alive and not self.hung:
                self._exit()

        self.host.network.call(
            self.host, master, hear, TIMEOUT, master.beat, self.actor, self.incarnation
        )
        self._after(BEAT, self._beat)

    def _after(self, delay: float, action: Any, *args: Any) -> None:
        self.host.after(delay, self._do, action, args)

    def _do(self, action: Any, args: tuple[Any, ...]) -> None:
        if self.alive and not self.hung:
            action(*args)
