"""The audit of a job: which processes are known to be gone, and who was blamed for what."""

from __future__ import annotations

from typing import Any, ClassVar

from folkmoot.core.job import JobSpec, Phase, State, machine
from folkmoot.core.job import messages as m
from folkmoot.core.machine import Machine
from folkmoot.simulate.audit import Audit, Crashed, Fact, Step
from folkmoot.simulate.job.invariants import CHART, INVARIANTS

Process = tuple[str, int]


class Suffered(Fact, frozen=True, tag=True):
    """A process raised an error, and only because another had failed."""

    actor: str
    incarnation: int
    because_of: str
    of_incarnation: int


class JobAudit(Audit[JobSpec, State]):
    name = "job"
    machine: ClassVar[Machine[Any]] = machine
    config_type = JobSpec
    facts = Crashed | Suffered
    invariants = INVARIANTS
    chart = CHART
    final = Phase.STOPPED

    def __init__(self, config: JobSpec, only: str = "") -> None:
        super().__init__(config, only)
        self.gone: set[Process] = set()  # processes that the machine was told are not there
        self.blamed: dict[Process, int] = {}  # who is charged, and when its failure was seen
        self.nodes_blamed = 0
        self.causes: dict[Process, Process] = {}  # whose failure made whom err
        self.fit: dict[str, int] = {}  # role -> the newest generation that was found fit

    def create(self, config: JobSpec) -> State:
        return machine.create(config)

    def learn(self, fact: Suffered) -> None:
        self.causes[fact.actor, fact.incarnation] = (fact.because_of, fact.of_incarnation)

    def observe(self, step: Step[State]) -> None:
        if step.after is step.before:
            return
        self._who_is_gone(step)
        if isinstance(step.event, m.ChildrenChecked) and not step.event.bad:
            self.fit[step.event.role] = step.event.generation
        self.before = dict(self.blamed)
        for effect in step.effects:
            if isinstance(effect, m.Blamed):
                self._blame(effect)
            elif isinstance(effect, m.Collateral):
                self.blamed.pop((effect.actor, effect.incarnation), None)

    def _blame(self, effect: m.Blamed) -> None:
        if effect.instead_of:
            theirs = [p for p in self.blamed if p[0] == effect.instead_of]
            self.blamed.pop(max(theirs, default=("", 0)), None)
        if effect.actor:
            self.blamed[effect.actor, effect.incarnation] = effect.at
        else:
            self.nodes_blamed += 1

    def _who_is_gone(self, step: Step[State]) -> None:
        event, actors = step.event, step.before.actors.values()
        if isinstance(event, m.Died):
            self.gone.add((event.actor, event.incarnation))
        elif isinstance(event, m.NodeGone):
            self.gone |= {(a.id, a.incarnation) for a in actors if a.node == event.node}
        elif isinstance(event, m.MasterRestarted):
            there = {(found.actor, found.incarnation) for found in event.living}
            self.gone |= {(a.id, a.incarnation) for a in actors} - there
