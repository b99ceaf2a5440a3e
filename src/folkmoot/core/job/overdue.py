"""What has a time, and what follows when it is over; and the end of a process, awaited or not."""

from collections.abc import Iterator

from folkmoot.core.job import delays, failures
from folkmoot.core.job import messages as m
from folkmoot.core.job.draft import Draft
from folkmoot.core.job.forming import enough_placed
from folkmoot.core.job.state import Actor, Placing, Stage, State


def next_tick(state: State, now: int) -> int | None:
    """When to tick if nothing arrives before; None when nothing is awaited."""
    return min(_times(state), default=None)


def _times(state: State) -> Iterator[int]:
    yield from (a.deadline for a in state.actors.values() if a.deadline is not None)
    if state.working:
        yield from (until for _, until in delays.waiting(state))
        yield from (r.join_deadline for r in state.roles.values() if r.join_deadline)
        yield from (p.until for p in state.placing.values() if p.until is not None)
        yield from (s.at + failures.grace(state) for s in state.suspects)


def tick(draft: Draft) -> None:
    """Do what is overdue."""
    now = draft.now
    for actor in list(draft.state.actors.values()):
        if actor.deadline is not None and actor.deadline <= now:
            # What became of one before it may have been this one's end already.
            _actor_overdue(draft, draft.state.actors[actor.id])
    if not draft.state.working:
        return
    delays.over(draft)
    while any(s.at + failures.grace(draft.state) <= now for s in draft.state.suspects):
        failures.judge(draft)
    for role in list(draft.state.roles.values()):
        if role.join_deadline and role.join_deadline <= now:
            draft.role(role.name, join_deadline=0)
    for gang, waiting in sorted(draft.state.placing.items(), key=lambda item: item[0]):
        if waiting.until is not None and waiting.until <= now:
            without_place(draft, gang, f"no room after {draft.state.spec.place_timeout:g} s")


def _actor_overdue(draft: Draft, actor: Actor) -> None:
    if actor.deadline is None or actor.deadline > draft.now:
        return
    if actor.doomed or not draft.state.working:
        why = actor.doomed or "it did not stop in time"
        draft.say(m.Kill(actor.id, actor.incarnation, why))
        draft.actor(actor.id, doomed=why, deadline=draft.now + failures.KILL_AGAIN)
        return
    draft.actor(actor.id, deadline=None)
    failures.fail(draft, actor.id, "silent", _awaited(draft.state, actor), draft.now)


def _awaited(state: State, actor: Actor) -> str:
    """What a process that counts as hung was asked for."""
    times = state.spec_of(actor.id).timeouts
    if actor.stage == Stage.INIT:
        return f"it was not ready after {times.ready:g} s"
    if actor.is_sub_master and state.roles[actor.role].checking:
        return f"it had not checked its workers after {times.check:g} s"
    return f"it did not start within {times.start:g} s"


def without_place(draft: Draft, gang: str, reason: str) -> None:
    """There is no room for a gang: an elastic role that has enough waits on, the job fails else."""
    state = draft.state
    totals = {name: role.total for name, role in state.roles.items()}
    found = next(g for g in state.spec.gangs_of(totals) if g.name == gang)
    if not enough_placed(state, found):
        failures.end(draft, f"{gang} cannot be placed: {reason}", 1)
    waiting = Placing(state.placing[gang].actors, None)
    draft.set(placing={**state.placing, gang: waiting})


def bury(draft: Draft, id: str, how: str, at: int) -> None:
    """A process is gone."""
    actor, state = draft.state.actors[id], draft.state
    if not state.working:
        failures.buried(draft, id)
    elif actor.doomed:
        failures.died_before(draft, actor, how, at)
        failures.buried(draft, id)
    elif actor.stage in (Stage.FINISH, Stage.FAILED) or state.finished(actor.role):
        # Its work is done; or its error is known, and its end belongs to that.
        draft.actor(id, alive=False, deadline=None)
    else:
        draft.actor(id, alive=False, deadline=None)
        failures.fail(draft, id, "died", how, at)
