"""A machine with processes on it, and what starts them there and outlives the master.

It makes, starts and ends processes as it is told, tells their ends until it is answered, and knows
which incarnations it has seen: a late order for an older one is not carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from folkmoot.core.job import messages as m
from folkmoot.simulate.job.master import TIMEOUT, MasterNode
from folkmoot.simulate.job.process import SimulatedProcess
from folkmoot.simulate.loop import Loop
from folkmoot.simulate.network import Network
from folkmoot.simulate.node import Node

BEAT = 1_000


class HostNode(Node):
    def __init__(self, loop: Loop, network: Network, master: MasterNode, name: str) -> None:
        super().__init__(loop)
        self.network, self.master, self.name = network, master, name
        self.processes: dict[str, SimulatedProcess] = {}
        self.newest: dict[str, int] = {}
        self.unfit = 0.0  # how often a check finds a worker unfit
        self.hosts: Sequence[HostNode] = ()

    def start(self) -> None:
        self._beat()

    def forget(self) -> None:
        """All its processes are gone, and nobody tells of their ends."""
        for process in self.processes.values():
            process.alive = False
        self.processes, self.newest = {}, {}

    def reform(self) -> None:
        super().reform()
        self.unfit = 0.0

    def living(self) -> tuple[m.Living, ...]:
        return tuple(m.Living(p.actor, p.incarnation) for p in self.processes.values())

    def obey(self, effect: Any, actor: str, incarnation: int) -> bool:
        process = self.processes.get(actor)
        present = process is not None and process.incarnation == incarnation
        match effect:
            case m.Create():
                self._create(actor, incarnation)
            case m.Kill() if process is not None and present:
                self.end(process, "SIGKILL")
            case m.Stop() if process is not None and present:
                process.stop()
            case m.Kill() | m.Stop():
                self.newest[actor] = max(self.newest.get(actor, 0), incarnation)
                self._tell_end(actor, incarnation, "it was not there")
            case m.Start(_, _, generation, world) if process is not None and present:
                process.start(generation, world)
            case m.Check(role, _, generation, world) if process is not None and present:
                process.check(role, generation, world)
        return True

    def end(self, process: SimulatedProcess, how: str) -> None:
        """A process is gone; its end is seen at once."""
        process.alive = False
        if self.processes.get(process.actor) is process:
            del self.processes[process.actor]
        self._tell_end(process.actor, process.incarnation, how)

    def _create(self, actor: str, incarnation: int) -> None:
        if incarnation <= self.newest.get(actor, 0):
            return
        self.newest[actor] = incarnation
        if older := self.processes.get(actor):
            self.end(older, "a newer one is here")
        self.processes[actor] = SimulatedProcess(self, actor, incarnation)

    def _tell_end(self, actor: str, incarnation: int, how: str) -> None:
        self.tell(m.Died(actor, incarnation, how, self.loop.now))

    def tell(self, event: m.Died) -> None:
        def hear(answer: Any) -> None:
            if answer is None:
                self.tell(event)

        self.network.call(self, self.master, hear, TIMEOUT, self.master.submit, event)

    def _beat(self) -> None:
        self.network.send(self, self.master, self.master.host_beat, self.name, self.life)
        self.after(BEAT, self._beat)
