"""Who is gone: what a quorum of witnesses says, or the client itself; and who then stands in.

A client that a quorum of the present election's witnesses cannot reach leaves as if it had said so
itself: at once in Warmup and Cooldown, at the end of the round otherwise, and nobody waits for it
until then. Fewer than a quorum can do nothing, so liars cannot have a living client called gone;
and one that is heard again in time stays: a witness may take its word back, and whoever speaks as
a witness, or says that it is ready, is there.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

from msgspec.structs import replace

from folkmoot.core.coordinator.committee import checkpointer_positions, checkpointers
from folkmoot.core.coordinator.state import Coordinator, Left, Round

# Identities cost nothing, so those that were used for a lie need not be remembered for ever.
EXPELLED_MAX = 4096


Votes = tuple[tuple[int, tuple[int, ...]], ...]


def call(votes: Votes, index: int, places: Iterable[int]) -> Votes:
    """With what the witness at roster `index` says, instead of what it said before."""
    others = [vote for vote in votes if vote[0] != index]
    return tuple(sorted((*others, (index, tuple(sorted(places))))))


def gone(state: Coordinator, election: Round) -> list[tuple[int, Left]]:
    """The places that a quorum calls gone and that are not leaving yet."""
    clients, leaving = state.epoch.clients, {place for place, _ in state.epoch.leaving}
    called = _called_by_quorum(state, election, state.epoch.called_gone)
    return [(p, Left.Gone) for p in called if p not in leaving and not clients[p].left]


def expel(state: Coordinator, election: Round) -> tuple[Coordinator, list[tuple[int, Left]]]:
    """Let nobody come back who, by the word of a quorum, told of two results for one share.

    Witnesses hold what they speak of, signed by its maker; a quorum of them needs no other proof.
    """
    clients = state.epoch.clients
    called = _called_by_quorum(state, election, state.epoch.called_false)
    new = [place for place in called if clients[place].id not in state.expelled]
    if not new:
        return state, []
    expelled = (*state.expelled, *(clients[place].id for place in new))[-EXPELLED_MAX:]
    leaving = [(place, Left.Equivocated) for place in new if not clients[place].left]
    return replace(state, expelled=expelled), leaving


def _called_by_quorum(state: Coordinator, election: Round, said: Votes) -> list[int]:
    clients, votes = state.epoch.clients, dict[int, int]()
    for index, places in said:
        if not clients[state.place(election, index)].left:
            for place in places:
                votes[place] = votes.get(place, 0) + 1
    quorum = state.quorum(election)
    return [place for place, count in sorted(votes.items()) if count >= quorum]


def spoke(state: Coordinator, place: int) -> Coordinator:
    """The client at `place` is there: whatever was said of it is void."""
    epoch = state.epoch
    if not epoch.called_gone:
        return state
    called = tuple((i, tuple(p for p in places if p != place)) for i, places in epoch.called_gone)
    leaving = tuple(mark for mark in epoch.leaving if mark != (place, Left.Gone))
    return replace(state, epoch=replace(epoch, called_gone=called, leaving=leaving))


def storing(state: Coordinator) -> frozenset[int]:
    """The places whose clients store the model in this cooldown.

    They are the first in an order that the seed gave; when one of them has left, the next one in
    that order stands in.
    """
    election = state.epoch.cooldown
    if election is None:
        return frozenset()
    return first_elected(state, election, checkpointers(state.roster_size(election)))


def first_elected(state: Coordinator, election: Round, count: int) -> frozenset[int]:
    """The first places of those who are here, in the order that the seed gave."""
    order = _order(state.roster_size(election), election.seed)
    places = (state.place(election, index) for index in order)
    here = (place for place in places if not state.epoch.clients[place].left)
    return frozenset(islice(here, count))


@lru_cache(4)  # asked after every event of a cooldown
def _order(size: int, seed: int) -> tuple[int, ...]:
    return tuple(checkpointer_positions(size, seed).argsort().tolist())
