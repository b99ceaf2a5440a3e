"""What every client computes from a round, computed once a world instead of once a client.

The functions are the core's own; only their answers are shared.
"""

from typing import NamedTuple

from folkmoot.core import bloom
from folkmoot.core.coordinator.assignment import Share
from folkmoot.core.coordinator.commitment import select_consensus_commitment_by_witnesses
from folkmoot.core.coordinator.committee import WitnessProof
from folkmoot.core.coordinator.health import trainer_healthy_score_by_witnesses
from folkmoot.core.coordinator.state import Coordinator, Round
from folkmoot.simulate.run.reference import mask

# (epoch, height) -> trainer's id -> the commitments it published
Published = dict[tuple[int, int], dict[bytes, list[bytes]]]


class Learnt(NamedTuple):
    """One result that a round's witnesses agreed on."""

    commitment: bytes
    samples: int  # a mask


class Committees:
    """Roles, shares and agreed results, by round."""

    def __init__(self, published: Published) -> None:
        self.published = published
        self._proofs: dict[tuple[int, int], list[WitnessProof]] = {}
        self._shares: dict[int, tuple[Round, list[tuple[int, Share]]]] = {}
        self._learnt: dict[tuple[int, int], tuple[Round, Round, list[Learnt]]] = {}

    def proof(self, state: Coordinator, round_: Round, index: int) -> WitnessProof:
        """What `index` is in a round."""
        key = (round_.seed, state.roster_size(round_))
        known = self._proofs.get(key)
        if known is None:
            selection = state.committee(round_)
            proofs = [selection.get_witness(i) for i in range(selection.total)]
            known = self._proofs[key] = proofs
        return known[index]

    def witnesses(self, state: Coordinator, round_: Round) -> list[int]:
        """The places of the elected."""
        self.proof(state, round_, 0)
        proofs = self._proofs[round_.seed, state.roster_size(round_)]
        return [state.place(round_, proof.index) for proof in proofs if proof.witness]

    def shares(self, state: Coordinator, round_: Round) -> list[tuple[int, Share]]:
        """(place, samples) of everyone who has work, in the order in which results are learnt."""
        known = self._shares.get(round_.seed)
        if known is None or known[0].spans != round_.spans or known[0].absent != round_.absent:
            rows = state.assignment(round_).shares()
            shares = sorted((state.place(round_, index), share) for index, share in rows)
            known = self._shares[round_.seed] = (round_, shares)
        return known[1]

    def learnt(self, state: Coordinator, by: Round, work: Round) -> list[Learnt]:
        """What to apply of `work`, whose results the closed round `by` attests.

        A share counts when its trainer is attested and a quorum holds one commitment of it.
        """
        known = self._learnt.get((id(by), id(work)))
        if known is None or known[0] is not by:
            known = (by, work, self._agree(state, by, work))
            self._learnt[id(by), id(work)] = known
        return known[2]

    def _agree(self, state: Coordinator, by: Round, work: Round) -> list[Learnt]:
        quorum = state.quorum(by)
        shares = self.shares(state, work)
        ids = [state.epoch.clients[place].id for place, _ in shares]
        scores = trainer_healthy_score_by_witnesses(ids, state, by).tolist()
        rows = [row for row, score in zip(shares, scores, strict=True) if score >= quorum]
        if len(by.witnesses) < quorum:
            return []
        published = self.published.get((state.epoch_number, work.height), {})
        filters = [
            (witness.broadcast_bloom, state.bloom_shape(by, witness.proof.index))
            for witness in by.witnesses
        ]
        single = [c[0] for c in published.values() if len(c) == 1]
        votes = dict.fromkeys(single, 0)
        for bits, shape in filters if single else ():
            for commitment, hit in zip(single, bloom.holds(bits, single, shape), strict=True):
                votes[commitment] += bool(hit)
        agreed = []
        for place, share in rows:
            claims = published.get(state.epoch.clients[place].id, [])
            if len(claims) == 1:
                chosen = claims[0] if votes[claims[0]] >= quorum else None
            else:
                chosen = select_consensus_commitment_by_witnesses(claims, filters, quorum)
            if chosen is not None:
                agreed.append(Learnt(chosen, mask(share)))
        return agreed
