"""PrimeMaster in its worlds: it places, tells hosts what to do, and misses the silent.

What it sends is sent again until it is answered; what it asked before it died may have arrived or
not. When it comes back it looks for processes before it hears anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from folkmoot.core.job import Phase, sub_master_id
from folkmoot.core.job import messages as m
from folkmoot.core.job.state import role_of
from folkmoot.core.liveness import Liveness
from folkmoot.simulate.coordinator import CoordinatorNode
from folkmoot.simulate.job.audit import JobAudit
from folkmoot.simulate.loop import Loop
from folkmoot.simulate.network import Network

if TYPE_CHECKING:
    from folkmoot.simulate.job.host import HostNode

LOOK = 500  # milliseconds between two looks at who is silent
TIMEOUT = 1_000
LOST_AFTER = 4_000  # milliseconds without a word from a host


class MasterNode(CoordinatorNode):
    audit: JobAudit

    def __init__(self, loop: Loop, network: Network, audit: JobAudit) -> None:
        super().__init__(loop, network, audit)
        self.hosts: Sequence[HostNode] = ()
        self.scarce = False  # whether there is little room
        self.forget_memory()

    def forget_memory(self) -> None:
        self.looking = False
        self.wanted: dict[str, m.Place] = {}
        self.boots: dict[str, int] = {}
        self.heard_hosts = Liveness(LOST_AFTER)
        self.heard = {
            name: Liveness(round(role.timeouts.silent * 1000))
            for name, role in self.audit.config.roles.items()
        }
        self.looked_at = 0

    def forget(self) -> None:
        super().forget()
        self.forget_memory()

    # Its beginnings.

    def start(self) -> None:
        if not self.audit.state.begun and self.audit.state.working:
            self.submit(m.StartAsked())
            self._begin()
            return
        self.looking = True
        answers: dict[str, tuple[m.Living, ...]] = {}
        for host in self.hosts:
            self._ask_for_processes(host, answers, 3)

    def _ask_for_processes(
        self, host: HostNode, answers: dict[str, tuple[m.Living, ...]], tries: int
    ) -> None:
        def hear(living: tuple[m.Living, ...] | None) -> None:
            if living is None and tries > 1:
                self._ask_for_processes(host, answers, tries - 1)
                return
            answers[host.name] = living or ()
            if len(answers) == len(self.hosts):
                self._take_over(tuple(found for them in answers.values() for found in them))

        self.network.call(self, host, hear, TIMEOUT, host.living)

    def _take_over(self, living: tuple[m.Living, ...]) -> None:
        self.looking = False
        self.submit(m.MasterRestarted(living, self.loop.now))
        if self.up:
            self._begin()

    def _begin(self) -> None:
        self._plan_tick()
        self._renew_liveness()
        self._look()

    def submit(self, event: Any) -> Any:
        """None is no answer: whoever asked asks again."""
        if self.looking or not self.up:
            return None
        return super().submit(event)

    # What others say.

    def beat(self, actor: str, incarnation: int) -> bool | None:
        """Whether a process counts."""
        if self.looking:
            return None
        counts = self.audit.state.process(actor, incarnation) is not None
        if counts:
            self._liveness(actor).heard(f"{actor}#{incarnation}", self.loop.now)
        return counts

    def host_beat(self, host: str, boot: int) -> bool | None:
        if self.looking:
            return None
        if self.boots.setdefault(host, boot) != boot:
            self.boots[host] = boot
            self._lose(host)
        self.heard_hosts.heard(host, self.loop.now)
        return True

    def _lose(self, host: str) -> None:
        self.submit(m.NodeGone(host, self.loop.now))
        for actor in list(self.audit.state.actors.values()):
            if (
                actor.alive
                and not actor.node
                and self._where(actor.id, actor.incarnation, "") == host
            ):
                died = m.Died(actor.id, actor.incarnation, "its node is gone", self.loop.now)
                self.submit(died)

    # What the machine asks.

    def act(self, effects: tuple[m.Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case m.Place(gang):
                    self.wanted[gang] = effect
                    self.after(self.loop.random.uniform(1, 400), self._place, effect)
                case m.Create(actor, incarnation, node) | m.Kill(actor, incarnation, node):
                    self._send(
                        effect, actor, incarnation, node if isinstance(effect, m.Create) else ""
                    )
                case m.Stop(actor, incarnation) | m.Start(actor, incarnation):
                    self._send(effect, actor, incarnation)
                case m.Check(role, incarnation):
                    self._send(effect, sub_master_id(role), incarnation)
                case m.ActorChanged(actor, incarnation, _, "READY"):
                    self._liveness(actor).heard(f"{actor}#{incarnation}", self.loop.now)

    def _place(self, asked: m.Place) -> None:
        if self.wanted.get(asked.gang) is not asked:
            return
        bundles = asked.bundles
        if self.scarce and asked.least < len(bundles):
            rest = m.Place(asked.gang, asked.strategy, bundles[asked.least :], 1, asked.avoid)
            bundles, self.wanted[asked.gang] = bundles[: asked.least], rest
            self.after(self.loop.random.uniform(3_000, 15_000), self._place, rest)
        else:
            del self.wanted[asked.gang]
        names = [host.name for host in self.hosts]
        allowed = [name for name in names if name not in asked.avoid] or names
        nodes: dict[str, str] = {}
        for bundle in bundles:
            node = self.loop.random.choice(allowed)
            nodes |= dict.fromkeys(bundle.actors, node)
        self.submit(m.Placed(asked.gang, nodes))

    def _where(self, actor: str, incarnation: int, node: str) -> str:
        """Where a process is; one with no place of its own has one that follows from its name."""
        found = self.audit.state.actors.get(actor)
        known = found.node if found and found.incarnation == incarnation else ""
        number = sum(map(ord, actor)) + incarnation
        return node or known or self.hosts[number % len(self.hosts)].name

    def _send(
        self, effect: Any, actor: str, incarnation: int, node: str = "", tries: int = 0
    ) -> None:
        where = self._where(actor, incarnation, node)
        host = next(host for host in self.hosts if host.name == where)

        def hear(answer: bool | None) -> None:
            if answer is None and self._matters(actor, incarnation, tries):
                self._send(effect, actor, incarnation, where, tries + 1)

        self.network.call(self, host, hear, TIMEOUT, host.obey, effect, actor, incarnation)

    def _matters(self, actor: str, incarnation: int, tries: int) -> bool:
        return tries < 5 or self.audit.state.process(actor, incarnation) is not None

    # Who is silent.

    def _liveness(self, actor: str) -> Liveness:
        return self.heard[role_of(actor)]

    def _renew_liveness(self) -> None:
        """Who could not be heard was not silent."""
        now = self.loop.now
        self.looked_at = now
        for host in self.hosts:
            self.heard_hosts.heard(host.name, now)
        for actor in self.audit.state.living():
            if actor.stage != "INIT":
                self._liveness(actor.id).heard(f"{actor.id}#{actor.incarnation}", now)

    def _look(self) -> None:
        if self.loop.now - self.looked_at > 2 * LOOK:
            self._renew_liveness()
        self.looked_at = self.loop.now
        life = self.life
        for name in self.heard_hosts.expired(self.loop.now):
            if self.life == life:
                self._lose(name)
        for liveness in self.heard.values():
            for process in liveness.expired(self.loop.now):
                actor, _, incarnation = process.partition("#")
                if self.life == life:
                    self.submit(m.Silent(actor, int(incarnation), "no sign of life", self.loop.now))
        if self.life == life and self.audit.state.phase is not Phase.STOPPED:
            self.after(LOOK, self._look)
