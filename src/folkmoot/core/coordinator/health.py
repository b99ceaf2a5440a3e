"""Who worked in a round, by what its witnesses saw."""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkmoot.core import bloom
from folkmoot.core.coordinator.assignment import Share
from folkmoot.core.coordinator.state import Coordinator, Round


def participant_item(identity: bytes) -> bytes:
    """What a witness puts into its participant filter for a client whose result it received.

    Eight bytes of a hash: short, because a coordinator looks ten thousand of them up in each of
    32 filters, and still out of reach for someone who wants to pass for another client.
    """
    return sha256(identity).digest()[:8]


def trainer_healthy_score_by_witnesses(
    identities: Sequence[bytes], state: Coordinator, round_: Round
) -> NDArray[np.int64]:
    """For each client, how many witnesses of `round_` saw its result."""
    items = bloom.as_rows([participant_item(identity) for identity in identities])
    scores = np.zeros(len(identities), np.int64)
    for witness in round_.witnesses:
        shape = state.bloom_shape(round_, witness.proof.index)
        scores += bloom.holds(witness.participant_bloom, items, shape)
    return scores


class TrainerScore(NamedTuple):
    """What the witnesses of a round say about the work of one."""

    owed: Share  # samples whose results no quorum would have learnt
    unhealthy: tuple[int, ...]  # places whose results a quorum did not see
    screened: tuple[int, ...] = ()  # places whose results a quorum saw and would not have learnt
    learnt: tuple[int, ...] = ()


def judge(state: Coordinator, by: Round, work: Round) -> TrainerScore:
    """Judge the shares of `work` by the witnesses of `by`.

    A result is learnt when a quorum attests it, and its sender is unhealthy when a quorum did not
    see it. What a witness screened it saw, and does not attest.
    In between the work is owed and nobody is to blame: one witness that lies, or is cut off from
    its peers, cannot have the others removed. Too few witnesses judge nobody.
    """
    shares = [(state.place(work, i), share) for i, share in state.assignment(work).shares()]
    quorum, heard = state.quorum(by), len(by.witnesses)
    if heard < quorum:
        return TrainerScore(tuple(work.spans), ())
    identities = [state.epoch.clients[place].id for place, _ in shares]
    scores = trainer_healthy_score_by_witnesses(identities, state, by).tolist()
    refused = Counter(place for witness in by.witnesses for place in witness.screened)
    saw = {place: _saw_only(state, by, place) for place in refused}
    rows = [(p, share, s) for (p, share), s in zip(shares, scores, strict=True)]
    unlearnt = {p for p, _, score in rows if score < quorum or p in by.void}
    owed = tuple(span for p, share, _ in rows if p in unlearnt for span in share)
    unhealthy = (p for p, _, s in rows if heard - s - saw.get(p, 0) >= quorum)
    screened = (p for p, _, _ in rows if p in unlearnt and refused[p] >= quorum)
    learnt = (p for p, _, _ in rows if p not in unlearnt)
    return TrainerScore(owed, *(tuple(sorted(places)) for places in (unhealthy, screened, learnt)))


def _saw_only(state: Coordinator, by: Round, place: int) -> int:
    """How many witnesses screened a place's result and do not attest it as well."""
    item = bloom.as_rows([participant_item(state.epoch.clients[place].id)])
    return sum(
        not bloom.holds(w.participant_bloom, item, state.bloom_shape(by, w.proof.index)).any()
        for w in by.witnesses
        if place in w.screened
    )


def agreed_model(state: Coordinator, by: Round) -> bytes | None:
    """The model hash that a quorum of the witnesses of `by` reported."""
    hashes = [witness.model_hash for witness in by.witnesses]
    best = max(sorted(set(hashes)), key=hashes.count, default=b"")
    return best if best and hashes.count(best) >= state.quorum(by) else None
