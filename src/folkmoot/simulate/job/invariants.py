"""What must hold of a job after every event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from folkmoot.core.job import Phase, Stage, State
from folkmoot.core.job import messages as m
from folkmoot.core.job.state import role_of
from folkmoot.simulate.audit import Chart, Invariant, Problems, Step
from folkmoot.simulate.invariants import OF_EVERY_MACHINE

if TYPE_CHECKING:
    from folkmoot.simulate.job.audit import JobAudit

JobStep = Step[State]
E = TypeVar("E", bound=m.Effect)
CHART: Chart = {
    Phase.INIT: {Phase.READY, Phase.STOPPING},
    Phase.READY: {Phase.INIT, Phase.RUNNING, Phase.STOPPING},
    Phase.RUNNING: {Phase.INIT, Phase.STOPPING},
    Phase.STOPPING: {Phase.STOPPED},
}


def only_the_living_are_awaited(audit: JobAudit, step: JobStep) -> Problems:
    """What has a deadline has a process; what is to go has one, too."""
    for actor in step.after.actors.values():
        if not actor.alive and (actor.deadline is not None or actor.doomed):
            yield f"{actor.id} is gone and awaited"


def an_actor_has_one_process(audit: JobAudit, step: JobStep) -> Problems:
    """The next process is made when the last one is known to be gone; none is made twice."""
    for create in _all(step, m.Create):
        last = (create.actor, create.incarnation - 1)
        if create.incarnation > 1 and last not in audit.gone:
            yield f"{create.actor} #{create.incarnation} is made while #{last[1]} may be there"
        if (create.actor, create.incarnation) in audit.gone:
            yield f"{create.actor} #{create.incarnation} is made again"


def who_failed_again_waits(audit: JobAudit, step: JobStep) -> Problems:
    """The process after two failures of which one soon followed the other is not made at once."""
    for create in _all(step, m.Create):
        id, policy = create.actor, step.after.spec_of(create.actor).backoff
        last = audit.blamed.get((id, create.incarnation - 1))
        before = audit.blamed.get((id, create.incarnation - 2))
        if last is None or before is None or last - before > policy.calm * 1000:
            continue
        if step.now < last + policy.first * 1000:
            yield f"{id} #{create.incarnation} is made {step.now - last} ms after its failure"


def only_the_present_process_is_heard(audit: JobAudit, step: JobStep) -> Problems:
    """What a process says that is not the one of now, or is to go, changes nothing."""
    event = step.event
    if step.after is step.before or not isinstance(event, m.ActorReady | m.Report | m.Raised):
        return
    actor = step.before.actors[event.actor]
    if event.incarnation != actor.incarnation or not actor.alive or actor.doomed:
        yield f"{event.actor} #{event.incarnation} was heard"


def nobody_outside_the_domain_is_touched(audit: JobAudit, step: JobStep) -> Problems:
    """While the job goes on, a process is ended only for a failure that reaches it, for its role's
    sake when that is elastic, or because it was to go already.
    """
    if not step.before.working or isinstance(step.event, m.ScaleAsked):
        return
    reached = _reached(step)
    for effect in step.effects:
        if not isinstance(effect, m.Kill) or effect.actor not in step.before.actors:
            continue
        actor = step.before.actors[effect.actor]
        counts = actor.alive and actor.incarnation == effect.incarnation and not actor.doomed
        if counts and actor.id not in reached and not _forms_anew(step, actor.role):
            yield f"{actor.id} is ended, and nobody in reach has failed"


def a_failure_reaches_its_domain(audit: JobAudit, step: JobStep) -> Problems:
    """All of the domain starts anew, unless it has not begun to work; nobody else does."""
    for recovering in _all(step, m.Recovering):
        domain = _domain(step.before, recovering.actor)
        if beyond := {*recovering.actors} - domain:
            yield f"{recovering.actor} failed and {sorted(beyond)} are out of reach"
        for id in domain - {*recovering.actors}:
            actor = step.after.actors.get(id)
            if actor is not None and actor.started and actor.incarnation > 0 and not actor.retired:
                yield f"{recovering.actor} failed and {id} goes on"


def every_failure_is_answered(audit: JobAudit, step: JobStep) -> Problems:
    """Who died at work starts anew, or the job ends, or an elastic role goes on without it."""
    if not isinstance(step.event, m.Died) or step.after is step.before:
        return
    before = step.before.actors[step.event.actor]
    after = step.after.actors.get(before.id)
    at_work = before.stage in (Stage.INIT, Stage.READY, Stage.RUNNING) and not before.doomed
    if after is None or not at_work or not step.after.working or after.retired:
        return
    if after.stage != Stage.INIT and not step.before.finished(before.role):
        yield f"{before.id} died and is {after.stage}"


def failures_are_charged_once(audit: JobAudit, step: JobStep) -> Problems:
    """The counts are those of the blames that stand."""
    counts: dict[str, int] = {}
    for id, _ in audit.blamed:
        counts[id] = counts.get(id, 0) + 1
    for actor in step.after.actors.values():
        # One that left and was wanted again is a new one.
        if actor.failures > counts.get(actor.id, 0):
            yield f"{actor.id} has {actor.failures} failures and was blamed {counts.get(actor.id)}"
    if step.after.failures != len(audit.blamed) + audit.nodes_blamed:
        yield f"the job has {step.after.failures} failures, {len(audit.blamed)} were blamed"


def no_budget_is_overdrawn(audit: JobAudit, step: JobStep) -> Problems:
    """A job that goes on is within all its budgets, by the count of the blames."""
    state = step.after
    if not state.working:
        return
    if len(audit.blamed) + audit.nodes_blamed > state.spec.budget.job:
        yield "the job goes on beyond its budget"
    by_role: dict[str, int] = {}
    for id, _ in audit.blamed:
        by_role[role_of(id)] = by_role.get(role_of(id), 0) + 1
    for role, count in by_role.items():
        if count > state.spec.roles[role].budget.role:
            yield f"{role} goes on beyond its budget"
    for actor in state.actors.values():
        if actor.failures > state.spec_of(actor.id).budget.worker and not actor.retired:
            yield f"{actor.id} goes on beyond its budget"


def who_suffered_is_not_blamed(audit: JobAudit, step: JobStep) -> Problems:
    """An error is not charged to its actor when the failure behind it is known."""
    grace = _grace(step.after)
    for blamed in _all(step, m.Blamed):
        cause = audit.causes.get((blamed.actor, blamed.incarnation))
        at = audit.before.get(cause) if cause else None
        if blamed.kind == "error" and at is not None and 0 <= blamed.at - at <= grace:
            yield f"{blamed.actor} is blamed, and {cause} had failed"


def an_error_has_its_grace(audit: JobAudit, step: JobStep) -> Problems:
    """Nobody is blamed for an error before another's death could be told."""
    for blamed in _all(step, m.Blamed):
        if blamed.kind == "error" and step.now < blamed.at + _grace(step.after):
            yield f"{blamed.actor} is blamed at {step.now} for an error of {blamed.at}"


def the_first_death_is_blamed(audit: JobAudit, step: JobStep) -> Problems:
    """When one who was ended for another's failure had died before that, the blame is its own."""
    event = step.event
    if not isinstance(event, m.Died) or step.after is step.before or not step.before.working:
        return
    actor = step.before.actors[event.actor]
    for failure in step.before.blamed:
        wrong = actor.doomed and failure.number == actor.doomed_by and failure.actor
        first = 0 < failure.at - event.at <= _grace(step.before)
        if wrong and first and (actor.id, actor.incarnation) not in audit.blamed:
            yield f"{actor.id} died first and {failure.actor} is blamed"


def a_world_is_complete(audit: JobAudit, step: JobStep) -> Problems:
    """A role is checked and starts with all its workers; an elastic one with enough."""
    for effect in step.effects:
        if not isinstance(effect, m.Check | m.Formed):
            continue
        asked = effect.generation == step.before.roles[effect.role].generation
        if asked and isinstance(effect, m.Check):
            continue  # a new master asks once more; those that came after the first time join later
        spec = step.after.spec.roles[effect.role]
        checks = spec.has_sub_master and spec.check
        if isinstance(effect, m.Formed) and checks:
            # Those that came after the check join later.
            if audit.fit.get(effect.role) != effect.generation:
                yield f"generation {effect.generation} of {effect.role} was not checked"
        elif late := _on_the_way(step.after, effect.role, effect.world):
            yield f"{effect.role} does not wait for {late}"
        elif len(effect.world) < step.after.least(effect.role) - _retired(step.after, effect.role):
            yield f"{effect.role} goes on with {effect.world}"


def who_starts_is_ready(audit: JobAudit, step: JobStep) -> Problems:
    """A process starts once it is ready; a worker when its sub-master and those before it run."""
    for start in _all(step, m.Start):
        actor = step.after.actors[start.actor]
        if step.before.actors[actor.id].started == start.generation:
            continue  # it is told once more
        if not actor.alive or actor.doomed or actor.incarnation != start.incarnation:
            yield f"{start.actor} #{start.incarnation} is started and is not there"
        master = step.after.sub_master(actor.role)
        if master and master.id != actor.id and master.generation < start.generation:
            yield f"{start.actor} starts before its sub-master"
        if step.after.phase is Phase.INIT:
            yield f"{start.actor} starts before the job is ready"
    for formed in _all(step, m.Formed):
        for other in step.after.spec.roles[formed.role].depends_on:
            if step.before.roles[other].forming and step.after.roles[other].forming:
                yield f"{formed.role} starts before {other}"


def it_ends_for_a_reason(audit: JobAudit, step: JobStep) -> Problems:
    """With 0 when all drivers have finished, and else with a reason."""
    for finish in _all(step, m.Finish):
        drivers = [name for name, role in step.after.spec.roles.items() if role.driver]
        unfinished = [name for name in drivers if not step.after.finished(name)]
        if finish.exit_code == 0 and unfinished:
            yield f"it ended with 0 and {unfinished} had not finished"
        if not finish.reason:
            yield "it ended without a reason"


def the_end_leaves_nothing(audit: JobAudit, step: JobStep) -> Problems:
    """STOPPED is the end: every process is known to be gone, and every place is given back."""
    if step.after.phase is not Phase.STOPPED:
        return
    alive = [a.id for a in step.after.actors.values() if a.alive]
    if step.moved:
        known = [a for a in step.before.actors.values() if a.alive]
        alive += [a.id for a in known if (a.id, a.incarnation) not in audit.gone]
        released = {release.gang for release in _all(step, m.Release)}
        if released != {*step.after.gangs}:
            yield f"{sorted({*step.after.gangs} - released)} are not given back"
    elif step.after is not step.before:
        yield "something happened after the end"
    if alive:
        yield f"{alive} are left"


def _on_the_way(state: State, role: str, world: tuple[str, ...]) -> list[str]:
    return [a.id for a in state.workers(role) if a.placed and a.id not in world]


def _retired(state: State, role: str) -> int:
    """How many workers of a role left though it should have them."""
    found = (a for a in state.actors.values() if a.role == role and a.retired)
    return sum(a.rank < state.roles[role].total for a in found)


def _all(step: JobStep, kind: type[E]) -> Iterator[E]:
    return (effect for effect in step.effects if isinstance(effect, kind))


def _grace(state: State) -> int:
    return round(state.spec.blame_grace * 1000)


def _reached(step: JobStep) -> set[str]:
    """Whom this step's failures reach, by the declared domains."""
    reached = set[str]()
    for recovering in _all(step, m.Recovering):
        reached |= _domain(step.before, recovering.actor)
    for effect in step.effects:
        if isinstance(effect, m.Blamed | m.Collateral):
            reached.add(effect.actor)
    return reached


def _domain(state: State, id: str) -> set[str]:
    actor, spec = state.actors[id], state.spec_of(id)
    if not actor.started or spec.domain == "worker":
        return {id}
    if spec.domain == "job":
        return set(state.actors)
    if actor.is_sub_master:
        return {id}
    roles = {actor.role}
    while spec.domain == "dependents":
        more = {n for n, r in state.spec.roles.items() if roles & {*r.depends_on}} - roles
        if not more:
            break
        roles |= more
    roles = {role for role in roles if role == actor.role or not state.finished(role)}
    return {a.id for role in roles for a in state.workers(role)} | {id}


def _forms_anew(step: JobStep, role: str) -> bool:
    """An elastic role whose world changes though nobody in it has failed."""
    world = step.before.roles[role].world
    retired = any(a.retired for a in step.after.actors.values() if a.role == role)
    ready = (a for a in step.after.workers(role) if a.stage == Stage.READY)
    grown = any(a.id not in world for a in ready)
    return step.before.spec.roles[role].elastic and (grown or retired)


INVARIANTS: tuple[Invariant, ...] = (
    *OF_EVERY_MACHINE,
    only_the_living_are_awaited,
    an_actor_has_one_process,
    who_failed_again_waits,
    only_the_present_process_is_heard,
    nobody_outside_the_domain_is_touched,
    a_failure_reaches_its_domain,
    every_failure_is_answered,
    failures_are_charged_once,
    no_budget_is_overdrawn,
    who_suffered_is_not_blamed,
    an_error_has_its_grace,
    the_first_death_is_blamed,
    a_world_is_complete,
    who_starts_is_ready,
    it_ends_for_a_reason,
    the_end_leaves_nothing,
)
