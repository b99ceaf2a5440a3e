"""What the elected of a round are, and what everyone who knows all results must learn of it.

The functions beneath are the core's own; only the audit knows every result that was published.
"""

from typing import NamedTuple

from folkmoot.core.coordinator.assignment import Share
from folkmoot.core.coordinator.commitment import (
    count_votes,
    select_consensus_commitment_by_witnesses,
)
from folkmoot.core.coordinator.health import trainer_healthy_score_by_witnesses
from folkmoot.core.coordinator.state import Coordinator, Round
from folkmoot.simulate.run.reference import mask

# (epoch, height) -> trainer's id -> the commitments it published
Published = dict[tuple[int, int], dict[bytes, list[bytes]]]


class AgreedResult(NamedTuple):
    """One result that a round's witnesses agreed on."""

    commitment: bytes
    samples: int  # a mask
    doubtful: bool  # the filters, which err at times, show another one of its trainer as well


def witnesses(state: Coordinator, round_: Round) -> list[int]:
    """The places of the elected."""
    selection = state.committee(round_)
    indices = (i for i in range(selection.total) if selection.get_witness(i).witness)
    return [state.place(round_, index) for index in indices]


def shares(state: Coordinator, round_: Round) -> list[tuple[int, Share]]:
    """(place, samples) of everyone who has work, in the order in which results are learnt."""
    rows = state.assignment(round_).shares()
    return sorted((state.place(round_, index), share) for index, share in rows)


def learnt(state: Coordinator, by: Round, work: Round, published: Published) -> list[AgreedResult]:
    """What to apply of `work`, whose results the closed round `by` attests.

    A share counts when its trainer is attested and a quorum holds one commitment of it.
    """
    quorum = state.quorum(by)
    if len(by.witnesses) < quorum:
        return []
    rows = [(state.epoch.clients[place].id, share) for place, share in shares(state, work)]
    scores = trainer_healthy_score_by_witnesses([trainer for trainer, _ in rows], state, by)
    filters = [(w.broadcast_bloom, state.bloom_shape(by, w.proof.index)) for w in by.witnesses]
    void = {state.epoch.clients[place].id for place in by.void}
    claims = published.get((state.epoch_number, work.height), {})
    votes = count_votes([one for said in claims.values() for one in said], filters)
    agreed = []
    for (trainer, share), score in zip(rows, scores.tolist(), strict=True):
        heard = score >= quorum and trainer not in void
        said = claims.get(trainer, []) if heard else []
        chosen = select_consensus_commitment_by_witnesses(said, votes, quorum)
        if chosen is not None:
            doubtful = sum(votes[one] >= quorum for one in said) > 1
            agreed.append(AgreedResult(chosen, mask(share), doubtful))
    return agreed
