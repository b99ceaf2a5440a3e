"""What must hold of a job after every event."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from folkmoot.core.iteration import keys
from folkmoot.core.iteration import machine as rank
from folkmoot.core.iteration import messages as m
from folkmoot.core.iteration.record import encode_record, read_record
from folkmoot.core.iteration.state import Phase
from folkmoot.simulate.audit import Chart, Invariant, Problems, Step
from folkmoot.simulate.invariants import OF_EVERY_MACHINE
from folkmoot.simulate.iteration.job import Hear, Job, To
from folkmoot.simulate.iteration.opinion import doubt, doubt_move

if TYPE_CHECKING:
    from folkmoot.simulate.iteration.audit import IterationAudit

P = Phase
CHART: Chart = {  # of each process
    P.Restarting: {P.Ready, P.Stopped},
    P.Training: {P.Ready, P.Stopped},
    P.Ready: {P.Consensus, P.Stopped},
    P.Consensus: {P.Advance, P.NewIteration, P.Stopped},
    P.Advance: {P.NewIteration, P.Stopped},
    P.NewIteration: {P.Training, P.Ready},
}


def one_decision_follows_another(audit: IterationAudit, step: Step[Job]) -> Problems:
    """The register moves from iteration n to n + 1, and never otherwise."""
    if problem := doubt_move(step.before.store, step.after.store, audit.config):
        yield problem


def a_wakeup_is_set_for_a_decision(audit: IterationAudit, step: Step[Job]) -> Problems:
    record = read_record(step.after.store.get(keys.CONSENSUS), audit.config.world)
    decided = record.iteration if record else -1
    for key in (keys.ready(decided + 1), keys.ready_as_before(decided + 1)):
        if key in step.after.store:
            yield f"{key} is set, and that was not decided"


def who_takes_part_was_decided_on(audit: IterationAudit, step: Step[Job]) -> Problems:
    """A process takes part in a decision that was made, that it is in, and once."""
    for effect in step.effects:
        if isinstance(effect, m.Advanced):
            record, name = effect.record, step.event.process
            state, last = step.after.processes[name].state, audit.took_part.get(name, -1)
            audit.took_part[name] = record.iteration
            if audit.decided[record.iteration : record.iteration + 1] != [encode_record(record)]:
                yield f"{name} takes part in {record}, which was not decided"
            if not record.has(state.rank, state.incarnation):
                yield f"{name} takes part in {record} and is not in it"
            if record.iteration <= last:
                yield f"{name} takes part in {record.iteration} after {last}"


def a_proposal_follows_from_what_was_seen(audit: IterationAudit, step: Step[Job]) -> Problems:
    """As a plain second opinion has it."""
    match step.event:
        case Hear(name, _, False) if step.effects:
            values = step.before.processes[name].answer
            before, after = step.before.processes[name].state, step.after.processes[name].state
            rules = before.rules
            wait = rules.straggler_timeout if before.record else rules.join_timeout
            if problem := doubt(before, after, values, late=step.now - before.since >= wait):
                yield problem


def a_rank_stops_only_when_a_newer_process_began(
    audit: IterationAudit, step: Step[Job]
) -> Problems:
    for effect in step.effects:
        if isinstance(effect, m.Stopped):
            state = step.after.processes[step.event.process].state
            begun = int(step.after.store.get(keys.incarnation(state.rank), b"0"))
            if effect.code != m.Reason.Fenced or begun <= state.incarnation:
                yield f"{step.event.process} stops: {effect.code}, {effect.reason}"


_PROCESS: Any = SimpleNamespace(chart=CHART, machine=rank)


def a_process_does_what_every_machine_does(audit: IterationAudit, step: Step[Job]) -> Problems:
    """What holds of every machine holds of each process by itself."""
    if isinstance(step.event, Hear | To) and step.effects:
        before, after = (
            job.processes[step.event.process].state for job in (step.before, step.after)
        )
        own: Step[Any] = Step(before, after, step.event, step.effects, step.now)
        for invariant in OF_EVERY_MACHINE:
            yield from invariant(_PROCESS, own)


INVARIANTS: tuple[Invariant, ...] = (
    one_decision_follows_another,
    a_wakeup_is_set_for_a_decision,
    who_takes_part_was_decided_on,
    a_proposal_follows_from_what_was_seen,
    a_rank_stops_only_when_a_newer_process_began,
    a_process_does_what_every_machine_does,
)
