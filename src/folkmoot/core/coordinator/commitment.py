"""What a client says it trained, and which of several claims the witnesses saw.

A commitment is a hash over the step, the samples and the bytes of a result. Every witness's
broadcast filter names the commitments whose bytes it received.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import numpy as np

from folkmoot.core import bloom
from folkmoot.core.coordinator.assignment import Span


def commitment_hash(step: int, spans: Sequence[Span], *parts: bytes) -> bytes:
    """The hash that stands for a result; ends of spans are inclusive, as in the public design."""
    digest = sha256(step.to_bytes(4, "big"))
    for span in spans:
        digest.update(span.start.to_bytes(8, "big") + (span.stop - 1).to_bytes(8, "big"))
    for part in parts:
        digest.update(part)
    return digest.digest()


def count_votes(
    commitments: Sequence[bytes], witnesses: Sequence[tuple[bytes, bloom.Shape]]
) -> dict[bytes, int]:
    """How many of the witnesses' broadcast filters hold each commitment."""
    votes = np.zeros(len(commitments), np.int64)
    for bits, shape in witnesses if commitments else ():
        votes += bloom.holds(bits, commitments, shape)
    return dict(zip(commitments, votes.tolist(), strict=True))


def select_consensus_commitment_by_witnesses(
    commitments: Iterable[bytes], votes: Mapping[bytes, int], quorum: int
) -> bytes | None:
    """The commitment that a quorum of broadcast filters holds.

    Equal on every client whatever the order of arrival: most votes win, then the smaller hash.
    """
    best = max(sorted(commitments), key=votes.__getitem__, default=None)
    return best if best is not None and votes[best] >= quorum else None
