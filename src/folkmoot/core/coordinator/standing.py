"""Who sends what nobody should learn, again and again: marks, ejection, and staying out.

A quorum of witnesses that screened a client's result (`client/screening.py`) leaves marks on the
client, and every result of it that is learnt takes one off. So a single odd result is forgotten
soon, and who sends nonsense in every round, or in every third, leaves: its place is empty when the
round ends, and its identity stays out for `ejection_epochs`. Fewer than a quorum mark nobody.
"""

from collections.abc import Collection

from msgspec.structs import replace

from folkmoot.core.coordinator.absence import EXPELLED_MAX
from folkmoot.core.coordinator.state import Coordinator, Ejection, Left

MARKS = 3  # that a screened result leaves
TOO_MANY = 12


def weigh(state: Coordinator, screened: Collection[int], learnt: Collection[int]) -> Coordinator:
    """After a round of which these places' results were screened, and these learnt."""
    if not state.marks and not screened:
        return state
    clients, marks = state.epoch.clients, dict(state.marks)
    for place in learnt:
        identity = clients[place].id
        if marks.get(identity):
            marks[identity] -= 1
    for place in screened:
        marks[clients[place].id] = marks.get(clients[place].id, 0) + MARKS
    out = [place for place in screened if marks[clients[place].id] >= TOO_MANY]
    for place in out:
        del marks[clients[place].id]
    kept = sorted((identity, count) for identity, count in marks.items() if count)
    return _eject(replace(state, marks=tuple(kept[:EXPELLED_MAX])), out)


def _eject(state: Coordinator, places: Collection[int]) -> Coordinator:
    if not places:
        return state
    until = state.epoch_number + 1 + state.run.config.ejection_epochs
    held = [ejection for ejection in state.ejected if ejection.until > state.epoch_number]
    new = (Ejection(state.epoch.clients[place].id, until) for place in places)
    leaving = (*state.epoch.leaving, *((place, Left.Ejected) for place in places))
    ejected = tuple((*held, *new)[-EXPELLED_MAX:])
    return replace(state, ejected=ejected, epoch=replace(state.epoch, leaving=leaving))


def is_out(state: Coordinator, identity: bytes) -> bool:
    """Whether a client was ejected and may not come back yet."""
    return any(e.id == identity and e.until > state.epoch_number for e in state.ejected)
