"""A role gets more workers, or fewer: the last ranks leave, and all others stay as they are.

An elastic role forms anew, since its workers are one world.
"""

from folkmoot.core.job import messages as m
from folkmoot.core.job.draft import Draft
from folkmoot.core.job.failures import forget_suspects
from folkmoot.core.job.forming import form_anew
from folkmoot.core.job.state import Actor, Stage, State, actor_id
from folkmoot.core.job.takeover import ask_to_stop


def scale(draft: Draft, name: str, total: int) -> m.Refused | None:
    if reason := _out_of_bounds(draft.state, name, total):
        return m.Refused(m.Reason.OutOfBounds, reason)
    before = draft.state.roles[name].total
    if total == before:
        return None
    draft.role(name, total=total)
    for rank in range(before, total):
        _add(draft, actor_id(name, rank))
    for rank in range(total, before):
        _leave(draft, draft.state.actors[actor_id(name, rank)])
    if total < before:
        _shrink_world(draft, name)
    return None


def _out_of_bounds(state: State, name: str, total: int) -> str:
    spec = state.spec.roles[name]
    if shared := next((group for group in state.spec.colocate if name in group), None):
        return f"{name} shares its places with {', '.join(r for r in shared if r != name)}"
    least = spec.least if spec.elastic else 1
    if not least <= total <= spec.most:
        return f"{name} may have from {least} to {spec.most} workers, not {total}"
    if total % spec.per_group:
        return f"{name} has groups of {spec.per_group} workers; {total} are no whole groups"
    # Who left for good still has its rank: what stays must be enough to form.
    staying = sum(worker.rank < total for worker in state.workers(name))
    if spec.elastic and total < state.roles[name].total and staying < least:
        return f"{name} has lost workers for good: {staying} would be left, and {least} are needed"
    return ""


def _add(draft: Draft, id: str) -> None:
    """A new worker; or one that left, and goes on counting its incarnations."""
    if id in draft.state.actors:
        draft.stage(
            id,
            Stage.INIT,
            "its role was scaled up",
            retired=False,
            started=0,
            in_a_row=0,
            not_before=None,
        )
    else:
        draft.add(Actor(id=id))


def _leave(draft: Draft, actor: Actor) -> None:
    forget_suspects(draft, {actor.id})
    draft.actor(actor.id, retired=True)
    if actor.alive and not actor.doomed:
        draft.actor(actor.id, doomed=f"{actor.role} was scaled down")
        ask_to_stop(draft, actor)


def _shrink_world(draft: Draft, name: str) -> None:
    here = {worker.id for worker in draft.state.workers(name)}
    world = tuple(id for id in draft.state.roles[name].world if id in here)
    role = draft.role(name, world=world)
    if role.forming:
        draft.role(name, checking=False, checked=False)
    elif draft.state.spec.roles[name].elastic:
        form_anew(draft, name, f"{name} was scaled down")
