"""The machine of a rank, broken on purpose: the model checker and the worlds find each of them."""

from typing import Any

from msgspec.structs import replace

from folkmoot.core.iteration import keys, machine
from folkmoot.core.iteration import messages as m
from folkmoot.core.iteration.record import Note, encode_record, read_arrival, read_record
from folkmoot.core.iteration.state import Asked, RankState
from folkmoot.simulate.iteration import model, store
from folkmoot.simulate.mutants import Mutants

_increment, _clear = machine.increment_global_iteration, machine.clear_global_iteration_ready
_everything, _missing = machine._everything, machine._missing
_incarnation, _arrived, _parts = machine._incarnation, machine._arrived, store.parts


def _set(state: RankState, members: Any, active: Any) -> Any:
    """The seed's election: whoever writes last has won, and everybody has."""
    after, (request,) = _increment(state, members, active)
    assert isinstance(request, m.Decide)
    return after, (m.Set(request.key, request.desired),)


def _expect_nothing(state: RankState, members: Any, active: Any) -> Any:
    after, (request,) = _increment(state, members, active)
    assert isinstance(request, m.Decide)
    return after, (replace(request, expected=b""),)


def _admit_nobody(state: RankState, members: Any, active: Any) -> Any:
    return _increment(state, members, {rank: active[rank] for rank in active if rank in members})


def _skip(state: RankState, members: Any, active: Any) -> Any:
    after, (request,) = _increment(state, members, active)
    assert isinstance(request, m.Decide)
    record = read_record(request.desired, state.rules.world)
    assert record is not None
    desired = encode_record(replace(record, iteration=record.iteration + 1))
    return replace(after, proposal=desired), (replace(request, desired=desired),)


def _any_process(state: RankState, arrivals: Any, active: dict[int, int]) -> dict[int, Note]:
    """An arrival counts whichever process of the rank is alive."""
    found = ((rank, read_arrival(arrivals[rank])) for rank in active)
    return _arrived(state, arrivals, {rank: a.incarnation for rank, a in found if a})


def _any_iteration(state: RankState, values: Any, now: int) -> Any:
    record = read_record(values[0], state.rules.world)
    if values[0] is None or record is None:
        return replace(state, look=True), ()
    return replace(state, register=values[0], record=record, target=record.iteration), ()


def _delete_all(iteration: int) -> m.Housekeeping:
    known = _clear(iteration)
    return replace(known, delete=(*known.delete, keys.CONSENSUS))


def _only_the_winner_wakes(state: RankState, values: Any, now: int) -> Any:
    """Who finds a decision waits until the winner tells it."""
    record = read_record(values[0], state.rules.world)
    if record and record.iteration >= state.target:
        return replace(state, look=False), ()
    return _everything(state, values, now)


def _nobody_is_silent(state: RankState, event: m.Silent, now: int) -> Any:
    return state, ()


def _same_process(state: RankState, values: Any, now: int) -> Any:
    """A process that begins takes the rank as if it were the one before."""
    return _incarnation(state, (b"1",), now)


def _members_are_everybody(state: RankState, notes: dict[int, Note]) -> bool:
    """Who was not in the last decision is not asked about."""
    last = state.record.members if state.record else ()
    known = {member.rank: member.incarnation for member in last}
    found = {rank: notes[rank].incarnation for rank in known if rank in notes}
    return bool(known) and not state.silent and found == known


def _any_note(state: RankState, notes: dict[int, Note]) -> bool:
    """A rank is there, whichever process of it has left a note."""
    return state.record is not None and not state.silent and len(notes) == state.rules.world


def _wait_for_nobody(state: RankState, members: Any, active: Any, now: int) -> Any:
    missing, why = _missing(state, members, active, now)
    return ((), "") if state.rank in members else (missing, why)


def _always_as_before(state: RankState, members: Any, active: Any) -> Any:
    """Who waits to hear that everybody goes on as before is woken by any decision."""
    after, (request,) = _increment(state, members, active)
    assert isinstance(request, m.Decide)
    wakeups = keys.ready_as_before(state.target), keys.ready(state.target)
    return after, (replace(request, wakeups=wakeups),)


def _woken_by_a_proposal(request: Any, seen: store.Values = ()) -> tuple[Any, ...]:
    """Who proposes wakes the others, however that went."""
    proposed = isinstance(request, m.Decide) and seen
    return _parts(request, (request.desired, *seen[1:]) if proposed else seen)


MUTANTS: Mutants = {
    "a decision is set": ((machine, "increment_global_iteration", _set),),
    "a decision expects nothing": ((machine, "increment_global_iteration", _expect_nothing),),
    "a decision skips one": ((machine, "increment_global_iteration", _skip),),
    "an arrival counts without its process": ((machine, "_arrived", _any_process),),
    "any decision wakes": (
        (machine._ANSWER, Asked.Decision, _any_iteration),
        (keys, "ready", lambda iteration: "global_iteration_ready"),
    ),
    "the newest decision is deleted": ((machine, "clear_global_iteration_ready", _delete_all),),
    "all go on as before": ((machine, "increment_global_iteration", _always_as_before),),
    "a proposal wakes": (
        (model, "parts", _woken_by_a_proposal),
        (store, "parts", _woken_by_a_proposal),
    ),
    "nobody is admitted": ((machine, "increment_global_iteration", _admit_nobody),),
    "only the winner wakes": ((machine._ANSWER, Asked.Everything, _only_the_winner_wakes),),
    "nobody is silent": ((machine._RECEIVE, m.Silent, _nobody_is_silent),),
    "a restart is the same process": ((machine._ANSWER, Asked.Incarnation, _same_process),),
    "nobody is waited for": ((machine, "_missing", _wait_for_nobody),),
    "the members are everybody": ((machine, "_everybody", _members_are_everybody),),
    "any note counts": ((machine, "_everybody", _any_note),),
}
# It takes the checker to show what these do. A rank that is left out has nothing to train, and in a
# world with time it is early for the next iteration, so it does not starve; and two that propose
# different decisions within a moment, while a third has just arrived, are too rare for chance.
_RARE = ("nobody is admitted", "a proposal wakes")
WORLD_MUTANTS = {name: MUTANTS[name] for name in MUTANTS if name not in _RARE}
