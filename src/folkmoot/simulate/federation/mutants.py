"""The machine of a federation, broken on purpose."""

from itertools import count
from typing import Any

from msgspec.structs import replace

from folkmoot.core.federation import machine
from folkmoot.core.federation import messages as m
from folkmoot.core.federation.rounds import is_over
from folkmoot.core.federation.state import Delivery, Phase, State
from folkmoot.core.table import Edge
from folkmoot.simulate.mutants import Mutants

_timely, _close = machine._timely, machine._close
_rendezvous, _delivered = machine._rendezvous, machine._delivered
_called = machine._RECEIVE[m.Called]
_enter_round, _enter_standby = machine._ENTER[Phase.ROUND], machine._ENTER[Phase.STANDBY]
_calls = count()


def _close_with_one(state: State) -> Any:
    """The first update closes a round."""
    if not state.deliveries:
        return state, ()
    keys = tuple(d.key for d in state.ordered())
    return replace(state, closing=keys), (m.Aggregate(state.round, keys),)


def _close_as_they_came(state: State) -> Any:
    closed, effects = _close(state)
    if closed is state:
        return state, effects
    keys = tuple(state.deliveries)
    return replace(closed, closing=keys), (m.Aggregate(state.round, keys),)


def _admit_the_expelled(state: State, event: m.Rendezvous, now: int) -> Any:
    after, effects = _rendezvous(replace(state, expelled=()), event, now)
    return (replace(after, expelled=state.expelled) if m.Joined(event.id) in effects else state), (
        effects
    )


def _admit_everyone(state: State, event: m.Rendezvous, now: int) -> Any:
    members = tuple(sorted({*state.members, event.id}))
    if state.phase is Phase.FINISHED or event.id in state.expelled or event.id in state.members:
        return _rendezvous(state, event, now)
    return replace(state, members=members), (m.Reply("ACCEPT"), m.Joined(event.id))


def _admit_when_finished(state: State, event: m.Rendezvous, now: int) -> Any:
    if state.phase is not Phase.FINISHED:
        return _rendezvous(state, event, now)
    after, effects = _rendezvous(replace(state, phase=Phase.STANDBY), event, now)
    return (replace(after, phase=state.phase) if m.Joined(event.id) in effects else state), effects


def _take_the_newest(state: State, event: m.Delivered, now: int) -> Any:
    """Another update for the same round replaces the one that counts."""
    delivery = Delivery(event.id, event.round, event.digest, event.samples)
    known = state.deliveries.get(delivery.key)
    if known is None or known == delivery or state.closing:
        return _delivered(state, event, now)
    deliveries = {**state.deliveries, delivery.key: delivery}
    return replace(state, deliveries=deliveries), (m.Counted(delivery.key, again=False),)


def _never_too_late(state: State, round_: int) -> m.Refused | None:
    refused = _timely(state, round_)
    return None if refused and refused.code == m.Reason.StaleRound else refused


def _lose_and_go_on(state: State, event: m.Lost, now: int) -> Any:
    """A round that closed is not opened again when one of its updates is lost."""
    left = {key: d for key, d in state.deliveries.items() if key not in event.keys}
    return replace(state, deliveries=left), ()


def _own_seed(state: State, now: int, seed: int) -> State:
    """A round takes its seed from somewhere else than its event."""
    return _enter_round(state, now, next(_calls))


def _forget_updates(state: State, now: int, seed: int) -> State:
    """Who has to wait for company loses what was delivered."""
    return replace(_enter_standby(state, now, seed), deliveries={})


def _eager(edge: Edge[State]) -> Edge[State]:
    """The next round begins however few are connected."""
    if (edge.source, edge.target) != (Phase.ROUND, Phase.ROUND):
        return edge
    return edge._replace(due=is_over)


def _obey_old_calls(state: State, event: m.Called, now: int) -> Any:
    """An aggregator goes back to a round that was over above."""
    known = state.upcoming or state.above
    if state.phase is Phase.FINISHED or known is None or event.above.round >= known.round:
        return _called(state, event, now)
    return replace(state, upcoming=event.above), ()


def _uncalled(edge: Edge[State]) -> Edge[State]:
    """An aggregator begins a round of its own."""
    if (edge.source, edge.target) != (Phase.STANDBY, Phase.ROUND):
        return edge
    return edge._replace(due=lambda state: machine._present(state) >= state.rules.min_connected)


MUTANTS: Mutants = {
    "anybody may deliver": ((machine, "_deliverer", lambda state, id, round_: None),),
    "any number of samples counts": ((machine, "_samples", lambda state, samples: None),),
    "an update is never too old": ((machine, "_timely", _never_too_late),),
    "the newest update counts": ((machine._RECEIVE, m.Delivered, _take_the_newest),),
    "the next round begins with whoever is there": (
        (machine, "TABLE", tuple(_eager(edge) for edge in machine.TABLE)),
    ),
    "a round closes with one update": ((machine, "_close", _close_with_one),),
    "updates are combined as they came": ((machine, "_close", _close_as_they_came),),
    "the expelled may come back": ((machine._RECEIVE, m.Rendezvous, _admit_the_expelled),),
    "there is always room": ((machine._RECEIVE, m.Rendezvous, _admit_everyone),),
    "who comes after the end is let in": ((machine._RECEIVE, m.Rendezvous, _admit_when_finished),),
    "a lost update stays in its round": ((machine._RECEIVE, m.Lost, _lose_and_go_on),),
    "a round draws its own seed": ((machine._ENTER, Phase.ROUND, _own_seed),),
    "an aggregator obeys an old call": ((machine._RECEIVE, m.Called, _obey_old_calls),),
    "an aggregator begins uncalled": (
        (machine, "TABLE", tuple(_uncalled(edge) for edge in machine.TABLE)),
    ),
    "a starved round forgets its updates": ((machine._ENTER, Phase.STANDBY, _forget_updates),),
}
