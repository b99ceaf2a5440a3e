"""Who may not be made again yet, since it failed again and again (`backoff`)."""

from folkmoot.core.job import messages as m
from folkmoot.core.job.draft import Draft
from folkmoot.core.job.state import Actor, Failure, Stage, State


def count(draft: Draft, failure: Failure) -> None:
    """It is to blame: how long its next process waits for that."""
    actor = draft.state.actors.get(failure.actor)
    if actor is None:
        return
    policy = draft.state.spec_of(actor.id).backoff
    soon = actor.in_a_row and failure.at - actor.failed_at <= round(policy.calm * 1000)
    in_a_row = actor.in_a_row + 1 if soon else 1
    seconds = policy.wait(in_a_row)
    draft.actor(actor.id, in_a_row=in_a_row, failed_at=failure.at, not_before=draft.after(seconds))
    if seconds and draft.state.working and not draft.state.ending:
        draft.say(m.Delayed(actor.id, seconds, in_a_row))


def forgive(draft: Draft, id: str) -> None:
    """It was not to blame after all."""
    if actor := draft.state.actors.get(id):
        draft.actor(id, in_a_row=max(actor.in_a_row - 1, 0), not_before=None)


def over(draft: Draft) -> None:
    """Those whose time has come wait no longer."""
    for actor, until in waiting(draft.state):
        if until <= draft.now:
            draft.actor(actor.id, not_before=None)


def begin_anew(draft: Draft) -> None:
    """For a new master, whose clock may be another's: nobody waits longer than the most."""
    for actor, until in waiting(draft.state):
        most = draft.after(draft.state.spec_of(actor.id).backoff.most)
        if most is not None:
            draft.actor(actor.id, not_before=min(until, most))


def waiting(state: State) -> list[tuple[Actor, int]]:
    """Who waits, until when."""
    return [
        (actor, actor.not_before)
        for actor in state.actors.values()
        if actor.not_before is not None and actor.stage == Stage.INIT and not actor.alive
    ]
