"""The machine of a job, broken on purpose."""

from typing import Any

from msgspec.structs import replace

from folkmoot.core.job import delays, failures, forming, machine, overdue, takeover
from folkmoot.core.job import messages as m
from folkmoot.core.job.draft import Draft
from folkmoot.core.job.state import Actor, Phase, Stage, State
from folkmoot.core.table import Edge
from folkmoot.simulate.mutants import Mutants

_unknown, _start = machine._unknown, forming.start
_bury, _buried = overdue.bury, failures.buried


def _hear_all(state: State, id: str, incarnation: int) -> m.Refused | None:
    """What any process of an actor says counts."""
    known = state.actors.get(id)
    return _unknown(state, id, known.incarnation if known else incarnation)


def _do_not_wait(draft: Draft, id: str, why: str, number: int = 0) -> None:
    """The next process is made before the last one is gone."""
    actor = draft.state.actors[id]
    if actor.alive:
        draft.say(m.Kill(id, actor.incarnation, why))
    if not actor.retired:
        draft.stage(id, Stage.INIT, why, started=0, generation=0, alive=False, deadline=None)


def _ignore_a_second_death(draft: Draft, id: str, how: str, at: int) -> None:
    """A role that has recovered once does so no more."""
    actor = draft.state.actors[id]
    if draft.state.roles[actor.role].failures and draft.state.working and not actor.doomed:
        draft.actor(id, alive=False, deadline=None)
    else:
        _bury(draft, id, how, at)


def _restart_all(draft: Draft, event: m.MasterRestarted) -> None:
    """A new master believes nobody."""
    for actor in draft.state.living():
        takeover._missing(draft, actor.id, event.at)


def _reach_all(state: State, actor: Actor) -> tuple[str, tuple[str, ...]]:
    return "job", tuple(state.roles)


def _reach_nobody_else(state: State, actor: Actor) -> tuple[str, tuple[str, ...]]:
    return "worker", ()


def _never_stopped(state: State) -> bool:
    """The end does not wait for processes that do not stop."""
    return True


def _hasty(edge: Edge[State]) -> Edge[State]:
    return edge._replace(due=_never_stopped) if edge.target == Phase.STOPPED else edge


def _take_whoever_is_ready(state: State, name: str) -> bool:
    """An elastic role does not wait for who is on the way."""
    return len(forming._ready(state, name)) >= state.least(name)


def _one_is_enough(state: State, name: str) -> bool:
    return len(forming._ready(state, name)) >= 1


def _start_together(draft: Draft, name: str) -> None:
    """Workers do not wait until their sub-master runs."""
    role = draft.state.roles[name]
    for worker in draft.state.workers(name):
        if worker.stage == Stage.READY and not (worker.started or worker.doomed):
            forming._start(draft, worker, role)
    _start(draft, name)


def _charge_nobody(draft: Draft, failure: Any, count: int) -> None:
    """A failure is told and not counted."""
    draft.set(seen=draft.state.seen)


def _forget_the_stopping(draft: Draft, actor: Actor) -> None:
    """Nobody looks whether a process stops."""
    draft.say(m.Stop(actor.id, actor.incarnation))
    draft.actor(actor.id, deadline=None)


def _never_wait(draft: Draft, failure: Any) -> None:
    """Who fails again and again is made again at once."""


def _blame_again(draft: Draft, id: str) -> None:
    """The end of a process that we killed is a failure of its own."""
    actor = draft.state.actors[id]
    if draft.state.working and actor.doomed:
        failures._charge(draft, replace(draft.state.blamed[-1], actor=id), 1)
    _buried(draft, id)


MUTANTS: Mutants = {
    "any incarnation is heard": ((machine, "_unknown", _hear_all),),
    "the next process does not wait for the last": (
        (failures, "renew", _do_not_wait),
        (forming, "renew", _do_not_wait),
    ),
    "the second death of a role is ignored": ((overdue, "bury", _ignore_a_second_death),),
    "a new master restarts everyone": ((takeover, "take_over", _restart_all),),
    "a failure reaches everyone": ((failures, "_reach", _reach_all),),
    "a failure reaches nobody else": ((failures, "_reach", _reach_nobody_else),),
    "no budget is ever used up": ((failures, "_exhausted", lambda *args: ""),),
    "failures are not counted": ((failures, "_charge", _charge_nobody),),
    "errors are judged at once": ((failures, "grace", lambda state: 0),),
    "who suffered is charged": ((failures, "_explains", lambda *args: False),),
    "the blame stays with who was told first": ((failures, "died_before", lambda *args: None),),
    "it ends while processes are left": ((machine, "TABLE", tuple(map(_hasty, machine.TABLE))),),
    "nobody looks whether a process stops": ((takeover, "ask_to_stop", _forget_the_stopping),),
    "a role does not wait for who is on the way": ((forming, "_enough", _take_whoever_is_ready),),
    "one worker is enough": ((forming, "_enough", _one_is_enough),),
    "workers start before their sub-master": ((forming, "start", _start_together),),
    "who fails again does not wait": ((delays, "count", _never_wait),),
    "the end of a killed process is charged": ((failures, "buried", _blame_again),),
}
