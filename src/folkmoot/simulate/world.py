"""A world: one machine, the nodes around it, a bad network, and what goes wrong.

A seed decides everything. After every event the invariants are checked; once the faults stop, the
machine must reach its end. Two worlds of one seed are the same, event by event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from folkmoot.simulate.audit import Audit, Violation
from folkmoot.simulate.coordinator import CoordinatorNode
from folkmoot.simulate.faults import FAULTS, Faults, plan
from folkmoot.simulate.loop import Loop
from folkmoot.simulate.mutants import Mutants
from folkmoot.simulate.network import Network
from folkmoot.simulate.node import Node
from folkmoot.simulate.report import WorldReport
from folkmoot.simulate.transcript import Transcript


class World:
    audit_type: ClassVar[type[Audit[Any, Any]]]
    mutants: ClassVar[Mutants] = {}
    faults: ClassVar[Faults] = FAULTS
    lengths: ClassVar = (6_000, 12_000, 20_000, 30_000)  # milliseconds until the faults stop
    strikes: ClassVar = 4  # at most, of each kind of fault
    pace: ClassVar = 1.0  # how much longer a fault lasts than in the world of a run
    patience: ClassVar = 400_000  # milliseconds after the faults stopped
    events_max: ClassVar = 60_000
    epilogue: ClassVar = 4_000  # milliseconds after the end, in which nothing may break either

    audit: Audit[Any, Any]
    coordinator: CoordinatorNode
    nodes: Sequence[Node]  # all others

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = Loop(seed)
        self.network = Network(self.loop)
        self.calm = False  # whether everything works and everyone is honest by now
        self.faults_end = 0
        self.populate()
        for node in self.nodes:
            self.loop.after(self.lasting(0, 3000), node.start)
        self.coordinator.start()
        plan(self)

    def populate(self) -> None:
        """Draw a configuration; make the audit, the coordinator and the nodes."""
        raise NotImplementedError

    def on_calm(self) -> None:
        """The faults have stopped: undo what they left behind."""

    def counts(self) -> dict[str, int]:
        """What happened, for the summary."""
        return {}

    def progress(self) -> str:
        """How far it is, for a world that does not finish."""
        return str(self.audit.state.phase)

    def lasting(self, shortest: float, longest: float) -> float:
        return self.loop.random.uniform(shortest, longest) * self.pace

    def play(self) -> None:
        """Until the machine has reached its end and nothing more goes wrong, or a `Violation`."""
        loop, audit = self.loop, self.audit
        while not (self.calm and audit.state.phase == audit.final):
            late = loop.now > self.faults_end + self.patience or loop.events > self.events_max
            if late or not loop.step():
                detail = f"{self.progress()} at {loop.now} ms"
                raise Violation("it_finishes_once_faults_stop", detail)
        end = loop.now + self.epilogue
        while loop.now < end and loop.step():
            pass

    def report(self) -> WorldReport:
        """Play it, and say how it went."""
        violation, transcript = None, ""
        try:
            self.play()
        except Violation as found:
            violation = str(found)
            title = f"seed {self.seed}, violated {found}"
            audit = self.audit
            transcript = str(Transcript(type(audit), audit.config, audit.log, title))
        return WorldReport(self.seed, self.loop.events, violation, transcript, self.counts())
