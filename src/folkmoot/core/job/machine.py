"""PrimeManager: the life of a job and of all its actors.

The rules, in words:

- An **actor** is a worker (`rollout-0`) or the sub-master of a role (`rollout-master`). Each of its
  processes has an incarnation; what an older one says is refused, and the next one is made only
  when the last is known to be gone. So there is never a second process that anybody obeys.
- **INIT**: all actors are placed and created at once. When those of every role are ready, and the
  sub-masters found their workers fit, the job is **READY**: roles start in the order of their
  dependencies. When all have, it is **RUNNING** (`forming` has the details).
- A failure is blamed on whoever failed first, charged to its budgets, and reaches as far as the
  failure domain of the role says (`failures`). Nobody outside is touched. A failure that restarts
  the job leads back to INIT.
- FINISH is the end of an actor's work; its process stays to answer calls, and its death is no
  failure any more. The job is over when all driver roles have finished; when a budget is used up;
  or when the owner asks for it.
- **STOPPING**: every process is asked to stop, and killed when it does not in time. **STOPPED**:
  none is left, and the places are given back.
- All that was asked of anybody is in the state. A new PrimeMaster says which processes are there
  (`MasterRestarted`): the missing have died, those that nobody knows are killed, what was asked is
  asked again, and everyone else is left alone.

Only `TABLE` changes the phase. No choice is left to chance: the seed is not used.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from folkmoot.core.job import failures, forming, overdue, takeover
from folkmoot.core.job import messages as m
from folkmoot.core.job.config import JobSpec
from folkmoot.core.job.draft import Draft
from folkmoot.core.job.scaling import scale
from folkmoot.core.job.state import (
    Actor,
    Phase,
    Placing,
    Role,
    Stage,
    State,
    actor_id,
    sub_master_id,
)
from folkmoot.core.machine import Outcome, decoder
from folkmoot.core.machine import encode as encode
from folkmoot.core.table import Edge, first

AnyEvent = m.AnyEvent
decode = decoder(State)
next_tick = overdue.next_tick


def create(spec: JobSpec) -> State:
    """A job before it begins. All is in the order of names, as it is when it is read back."""
    spec = replace(spec, roles=dict(sorted(spec.roles.items())))
    actors: dict[str, Actor] = {}
    for name, role in spec.roles.items():
        ids = [actor_id(name, rank) for rank in range(role.size)]
        ids += [sub_master_id(name)] if role.has_sub_master else []
        actors |= {id: Actor(id=id) for id in ids}
    roles = {name: Role(name=name, total=role.size) for name, role in spec.roles.items()}
    return State(spec=spec, actors=dict(sorted(actors.items())), roles=roles)


def apply(state: State, event: m.AnyEvent, now: int, seed: int) -> Outcome[State]:
    """Take one event at `now` (milliseconds)."""
    draft = Draft(state, now)
    refused = _RECEIVE[type(event)](draft, event)
    if refused is not None:
        return Outcome(state, (refused,))
    if draft.changes:
        _settle(draft)
    return Outcome(draft.state, tuple(draft.effects))


# Events. Each says why it is refused, or None.


def _start_asked(draft: Draft, event: m.StartAsked) -> m.Refused | None:
    if draft.state.begun or not draft.state.working:
        return _not_now("the job has begun already")
    draft.set(begun=True)
    return None


def _stop_asked(draft: Draft, event: m.StopAsked) -> m.Refused | None:
    if not draft.state.working:
        return _not_now(f"the job is {draft.state.phase} already")
    draft.set(ending="stopped", reason=event.reason, exit_code=event.exit_code)
    return None


def _scale_asked(draft: Draft, event: m.ScaleAsked) -> m.Refused | None:
    if event.role not in draft.state.roles:
        return m.Refused(m.Reason.UnknownRole, f"the job has no role '{event.role}'")
    if not draft.state.working or draft.state.finished(event.role):
        return _not_now(f"{event.role} has finished, or the job is {draft.state.phase}")
    return scale(draft, event.role, event.total)


def _placed(draft: Draft, event: m.Placed) -> m.Refused | None:
    state = draft.state
    if event.gang not in state.gangs:
        return m.Refused(m.Reason.UnknownGang, f"no place was asked for '{event.gang}'")
    if not state.working:
        return _not_now(f"the job is {state.phase}")
    waiting = state.placing.get(event.gang)
    if waiting is None:
        return None
    for id in waiting.actors:
        if id in event.nodes and id in state.actors and not state.actors[id].alive:
            draft.actor(id, placed=True, node=event.nodes[id])
    left = tuple(id for id in waiting.actors if id not in event.nodes)
    if len(left) < len(waiting.actors):
        rest = {gang: w for gang, w in state.placing.items() if gang != event.gang}
        more = {event.gang: Placing(left, waiting.until)} if left else {}
        draft.set(placing={**rest, **more})
    return None


def _unplaceable(draft: Draft, event: m.Unplaceable) -> m.Refused | None:
    if event.gang not in draft.state.placing:
        return m.Refused(m.Reason.UnknownGang, f"'{event.gang}' waits for no place")
    if not draft.state.working:
        return _not_now(f"the job is {draft.state.phase}")
    overdue.without_place(draft, event.gang, event.reason)
    return None


def _actor_ready(draft: Draft, event: m.ActorReady) -> m.Refused | None:
    if refused := _unheard(draft.state, event.actor, event.incarnation):
        return refused
    if draft.state.actors[event.actor].stage != Stage.INIT:
        return _not_now(f"{event.actor} is {draft.state.actors[event.actor].stage} already")
    node = event.node or draft.state.actors[event.actor].node
    draft.stage(event.actor, Stage.READY, node=node, deadline=None)
    return None


def _children_checked(draft: Draft, event: m.ChildrenChecked) -> m.Refused | None:
    role, master = draft.state.roles.get(event.role), draft.state.sub_master(event.role)
    if role is None or master is None:
        return m.Refused(m.Reason.UnknownRole, f"no sub-master checks '{event.role}'")
    if refused := _unheard(draft.state, master.id, event.incarnation):
        return refused
    if event.generation != role.generation or not role.checking:
        return m.Refused(
            m.Reason.OldGeneration,
            f"no verdict is awaited on generation {event.generation} of {role.name}",
        )
    draft.actor(master.id, deadline=None)
    draft.role(role.name, checking=False, checked=True)
    for id in event.bad:
        if id in role.world and draft.state.actors[id].fresh:
            failures.fail(draft, id, "unfit", event.reason or "its check failed", event.at)
    return None


def _report(draft: Draft, event: m.Report) -> m.Refused | None:
    if refused := _unheard(draft.state, event.actor, event.incarnation, stopping=True):
        return refused
    actor = draft.state.actors[event.actor]
    if not actor.started or actor.stage not in (Stage.READY, Stage.RUNNING):
        return _not_now(f"{actor.id} is {actor.stage}, and was not told to start")
    if event.stage == Stage.FINISH:
        # While the job stops, its process still has to go in time.
        deadline = None if draft.state.working else actor.deadline
        draft.stage(actor.id, Stage.FINISH, result=event.result, deadline=deadline)
    elif event.stage != Stage.RUNNING or not draft.state.working:
        return _not_now(f"an actor reports RUNNING or FINISH, not '{event.stage}'")
    else:
        _runs(draft, actor, event.generation or actor.started)
    return None


def _runs(draft: Draft, actor: Actor, generation: int) -> None:
    generation = min(generation, actor.started)
    if actor.stage == Stage.RUNNING and generation <= actor.generation:
        return
    awaited = generation < actor.started or draft.state.roles[actor.role].checking
    deadline = actor.deadline if awaited else None
    draft.stage(actor.id, Stage.RUNNING, generation=generation, deadline=deadline)


def _raised(draft: Draft, event: m.Raised) -> m.Refused | None:
    if refused := _unheard(draft.state, event.actor, event.incarnation):
        return refused
    actor = draft.state.actors[event.actor]
    if actor.stage in (Stage.FINISH, Stage.FAILED) or draft.state.finished(actor.role):
        return _not_now(f"{actor.id} is {actor.stage} already")
    failures.suspect(draft, actor.id, event.how, event.at, event.exit_code)
    return None


def _died(draft: Draft, event: m.Died) -> m.Refused | None:
    if refused := _unknown(draft.state, event.actor, event.incarnation):
        return refused
    overdue.bury(draft, event.actor, event.how, event.at)
    return None


def _silent(draft: Draft, event: m.Silent) -> m.Refused | None:
    if refused := _unheard(draft.state, event.actor, event.incarnation):
        return refused
    actor = draft.state.actors[event.actor]
    if actor.stage in (Stage.FINISH, Stage.FAILED) or draft.state.finished(actor.role):
        return _not_now(f"nothing is awaited from {actor.id}: it is {actor.stage}")
    failures.fail(draft, actor.id, "silent", event.how, event.at)
    return None


def _node_gone(draft: Draft, event: m.NodeGone) -> m.Refused | None:
    there = [a for a in draft.state.actors.values() if a.node == event.node]
    if not draft.state.working:
        there = [a for a in there if a.alive]
    if not event.node or not there:
        return _not_now(f"nothing of the job is on the node '{event.node}'")
    if draft.state.working:
        failures.lose_node(draft, event.node, event.at)
    else:
        for actor in there:
            draft.actor(actor.id, node="")
            failures.buried(draft, actor.id)
    return None


def _tick(draft: Draft, event: m.Tick) -> m.Refused | None:
    overdue.tick(draft)
    return None


def _master_restarted(draft: Draft, event: m.MasterRestarted) -> m.Refused | None:
    takeover.take_over(draft, event)
    return None


_RECEIVE: dict[type, Callable[[Draft, Any], m.Refused | None]] = {
    m.StartAsked: _start_asked,
    m.StopAsked: _stop_asked,
    m.ScaleAsked: _scale_asked,
    m.Placed: _placed,
    m.Unplaceable: _unplaceable,
    m.ActorReady: _actor_ready,
    m.ChildrenChecked: _children_checked,
    m.Report: _report,
    m.Raised: _raised,
    m.Died: _died,
    m.Silent: _silent,
    m.NodeGone: _node_gone,
    m.Tick: _tick,
    m.MasterRestarted: _master_restarted,
}


def _unknown(state: State, id: str, incarnation: int) -> m.Refused | None:
    """Whether the process is not the one that counts."""
    actor = state.actors.get(id)
    if actor is None:
        return m.Refused(m.Reason.UnknownActor, f"the job has no actor '{id}'")
    if incarnation != actor.incarnation:
        return m.Refused(
            m.Reason.OldIncarnation,
            f"incarnation {incarnation} of {id} does not count: it is at {actor.incarnation}",
        )
    if not actor.alive:
        return m.Refused(m.Reason.Gone, f"incarnation {incarnation} of {id} is known to be gone")
    return None


def _unheard(
    state: State, id: str, incarnation: int, *, stopping: bool = False
) -> m.Refused | None:
    """Whether nobody listens to the process any more."""
    if refused := _unknown(state, id, incarnation):
        return refused
    if state.actors[id].doomed:
        return _not_now(f"incarnation {incarnation} of {id} is to go: {state.actors[id].doomed}")
    if state.phase is Phase.STOPPED or (state.phase is Phase.STOPPING and not stopping):
        return _not_now(f"the job is {state.phase}")
    return None


def _not_now(reason: str) -> m.Refused:
    return m.Refused(m.Reason.NotNow, reason)


# What follows.


def _settle(draft: Draft) -> None:
    while True:
        changes = draft.changes
        edge = first(TABLE, draft.state.phase, draft.state)
        if edge is not None:
            draft.say(m.StateChanged(draft.state.phase, edge.target, edge.when))
            draft.set(phase=Phase(edge.target))
            _ENTER[Phase(edge.target)](draft)
        elif draft.state.begun and draft.state.working:
            forming.follow(draft)
        if draft.changes == changes:
            return


def _failed(state: State) -> bool:
    return state.ending == "failed"


def _stopped(state: State) -> bool:
    return state.ending == "stopped"


def _done(state: State) -> bool:
    drivers = [name for name, role in state.spec.roles.items() if role.driver]
    return all(state.finished(name) for name in drivers)


def _restarts(state: State) -> bool:
    return state.restarting


def _prepared(state: State) -> bool:
    return state.begun and all(forming.prepared(state, name) for name in state.roles)


def _all_run(state: State) -> bool:
    return all(state.runs(name) for name in state.roles)


def _nothing_left(state: State) -> bool:
    return not any(actor.alive for actor in state.actors.values())


#: The machine. Edges are tried in this order; nothing else changes the phase.
TABLE: tuple[Edge[State], ...] = (
    Edge(Phase.INIT, Phase.STOPPING, "the job failed", _failed),
    Edge(Phase.INIT, Phase.STOPPING, "stop was asked for", _stopped),
    Edge(Phase.INIT, Phase.READY, "all actors are ready, and their sub-masters agree", _prepared),
    Edge(Phase.READY, Phase.STOPPING, "the job failed", _failed),
    Edge(Phase.READY, Phase.STOPPING, "stop was asked for", _stopped),
    Edge(Phase.READY, Phase.INIT, "a failure restarts the job", _restarts),
    Edge(Phase.READY, Phase.STOPPING, "all drivers have finished", _done),
    Edge(Phase.READY, Phase.RUNNING, "all actors run", _all_run),
    Edge(Phase.RUNNING, Phase.STOPPING, "the job failed", _failed),
    Edge(Phase.RUNNING, Phase.STOPPING, "stop was asked for", _stopped),
    Edge(Phase.RUNNING, Phase.INIT, "a failure restarts the job", _restarts),
    Edge(Phase.RUNNING, Phase.STOPPING, "all drivers have finished", _done),
    Edge(Phase.STOPPING, Phase.STOPPED, "no process is left", _nothing_left),
)


def _enter_init(draft: Draft) -> None:
    draft.set(restarting=False, restarts=draft.state.restarts + 1)


def _enter_stopping(draft: Draft) -> None:
    if draft.state.ending is None:
        draft.set(ending="finished", reason="all drivers have finished", exit_code=0)
    draft.set(suspects=(), placing={}, restarting=False)
    for actor in draft.state.living():
        if not actor.doomed:
            takeover.ask_to_stop(draft, actor)


def _enter_stopped(draft: Draft) -> None:
    takeover.give_back(draft)


_ENTER: dict[Phase, Callable[[Draft], None]] = {
    Phase.INIT: _enter_init,
    Phase.READY: lambda draft: None,
    Phase.RUNNING: lambda draft: None,
    Phase.STOPPING: _enter_stopping,
    Phase.STOPPED: _enter_stopped,
}
