"""The audit of a job: every decision that was made, and who took part in which."""

from __future__ import annotations

from typing import Any, ClassVar

from folkmoot.core.iteration import Rules, keys
from folkmoot.core.machine import Machine
from folkmoot.simulate.audit import Audit, Step
from folkmoot.simulate.iteration import job
from folkmoot.simulate.iteration.invariants import CHART, INVARIANTS
from folkmoot.simulate.iteration.job import Job


class IterationAudit(Audit[Rules, Job]):
    name = "iteration"
    machine: ClassVar[Machine[Any]] = job
    config_type = Rules
    invariants = INVARIANTS
    chart = CHART
    final = job.OVER
    # Whether its heartbeat was taken from a process is told to it by the world.
    need_the_world = frozenset({"a_rank_stops_only_when_a_newer_process_began"})

    def __init__(self, config: Rules, only: str = "") -> None:
        super().__init__(config, only)
        self.decided: list[bytes] = []
        self.took_part: dict[str, int] = {}  # process -> the newest iteration it took part in

    def create(self, config: Rules) -> Job:
        return job.create(config)

    def observe(self, step: Step[Job]) -> None:
        new = step.after.store.get(keys.CONSENSUS)
        if new is not None and new != step.before.store.get(keys.CONSENSUS):
            self.decided.append(new)
