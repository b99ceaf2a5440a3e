"""Who worked in a round, by what its witnesses saw."""

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


class Judgement(NamedTuple):
    """What the witnesses of a round say about the work of one."""

    owed: Share  # samples whose results no quorum saw
    unhealthy: tuple[int, ...]  # places whose results a quorum did not see


def judge(state: Coordinator, by: Round, work: Round) -> Judgement:
    """Judge the shares of `work` by the witnesses of `by`.

    A result is learnt when a quorum saw it, and its sender is unhealthy when a quorum did not.
    In between the work is owed and nobody is to blame: one witness that lies, or is cut off from
    its peers, cannot have the others removed. Too few witnesses judge nobody.
    """
    shares = [(state.place(work, i), share) for i, share in state.assignment(work).shares()]
    quorum, heard = state.quorum(by), len(by.witnesses)
    if heard < quorum:
        return Judgement(tuple(work.spans), ())
    identities = [state.epoch.clients[place].id for place, _ in shares]
    scores = trainer_healthy_score_by_witnesses(identities, state, by).tolist()
    rows = list(zip(shares, scores, strict=True))
    unlearnt = (share for (p, share), score in rows if score < quorum or p in by.void)
    owed = tuple(span for share in unlearnt for span in share)
    return Judgement(owed, tuple(sorted(p for (p, _), s in rows if heard - s >= quorum)))


def agreed_model(state: Coordinator, by: Round) -> bytes | None:
    """The model hash that a quorum of the witnesses of `by` reported."""
    hashes = [witness.model_hash for witness in by.witnesses]
    best = max(sorted(set(hashes)), key=hashes.count, default=b"")
    return best if best and hashes.count(best) >= state.quorum(by) else None
