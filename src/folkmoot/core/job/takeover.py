"""A new PrimeMaster goes on where the last one was: healthy workers do not notice.

The state says what was asked of whom; which processes are there is found out by the substrate. What
was asked and not answered is asked again, since nobody knows whether it was carried out; to do it
twice is the same as once. All times begin anew: nobody could be heard while there was no master.
"""

from folkmoot.core.job import delays, failures, forming
from folkmoot.core.job import messages as m
from folkmoot.core.job.draft import Draft
from folkmoot.core.job.overdue import bury
from folkmoot.core.job.state import Actor, Phase, Placing, Stage


def take_over(draft: Draft, event: m.MasterRestarted) -> None:
    there = {(found.actor, found.incarnation) for found in event.living}
    _kill_strangers(draft, event)
    if draft.state.phase is Phase.STOPPED:
        give_back(draft)
        return
    # When they died nobody saw: perhaps before the errors that are not judged yet.
    at = min([event.at, *(s.at for s in draft.state.suspects)])
    for actor in draft.state.living():
        if (actor.id, actor.incarnation) not in there:
            _missing(draft, actor.id, at)
    if draft.state.working and draft.state.ending:
        return  # all are asked to stop next
    for actor in draft.state.living():
        _ask_again(draft, actor)
    for role in draft.state.roles.values():
        if role.checking and draft.state.working:
            draft.say(forming.check_effect(draft, role.name))
    delays.begin_anew(draft)
    _place_again(draft)


def give_back(draft: Draft) -> None:
    """The end: let the places go, and say how it ended."""
    for gang in draft.state.gangs:
        draft.say(m.Release(gang))
    draft.say(m.Finish(draft.state.exit_code or 0, draft.state.reason))


def ask_to_stop(draft: Draft, actor: Actor) -> None:
    wait = draft.state.spec_of(actor.id).timeouts.stop
    draft.say(m.Stop(actor.id, actor.incarnation))
    draft.actor(actor.id, deadline=draft.after(wait))


def _kill_strangers(draft: Draft, event: m.MasterRestarted) -> None:
    """Processes that should not be there: of an older incarnation, or of one that left."""
    for found in event.living:
        if not draft.state.process(found.actor, found.incarnation):
            draft.say(m.Kill(found.actor, found.incarnation, "it does not count any more"))


def _missing(draft: Draft, id: str, at: int) -> None:
    actor = draft.state.actors.get(id)
    if actor is None or not actor.alive:
        return
    if actor.stage == Stage.INIT and not actor.doomed and draft.state.working:
        # Perhaps it was never made: it is made now, and nobody is to blame.
        draft.actor(id, alive=False, deadline=None)
    else:
        bury(draft, id, "it was gone when a new master looked", at)


def _ask_again(draft: Draft, actor: Actor) -> None:
    times = draft.state.spec_of(actor.id).timeouts
    if actor.doomed:
        draft.say(m.Kill(actor.id, actor.incarnation, actor.doomed))
        draft.actor(actor.id, deadline=draft.now + failures.KILL_AGAIN)
    elif not draft.state.working:
        ask_to_stop(draft, actor)
    elif actor.stage == Stage.INIT:
        draft.actor(actor.id, deadline=draft.after(times.ready))
    elif _told_to_start(actor):
        draft.say(forming.start_effect(draft.state, actor))
        draft.actor(actor.id, deadline=draft.after(times.start))


def _told_to_start(actor: Actor) -> bool:
    waits = actor.stage == Stage.READY or actor.generation < actor.started
    return waits and actor.started > 0 and actor.stage in (Stage.READY, Stage.RUNNING)


def _place_again(draft: Draft) -> None:
    state = draft.state
    if not state.placing or not state.working:
        return
    until = draft.after(state.spec.place_timeout)
    draft.set(placing={g: Placing(p.actors, p.until and until) for g, p in state.placing.items()})
    for gang in state.spec.gangs_of({name: role.total for name, role in state.roles.items()}):
        if gang.name in state.placing:
            draft.say(forming.place_effect(draft.state, gang))
