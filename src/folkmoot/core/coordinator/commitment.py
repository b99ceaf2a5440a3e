"""What a client says it trained, and which of several claims the witnesses saw.

A commitment is a hash over the step, the samples and the bytes of a result. Every witness's
broadcast filter names the commitments whose bytes it received.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

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


def select_consensus_commitment_by_witnesses(
    commitments: Iterable[bytes],
    witnesses: Sequence[tuple[bytes, bloom.Shape]],
    quorum: int,
) -> bytes | None:
    """The commitment that a quorum of broadcast filters holds.

    Equal on every client whatever the order of arrival: most votes win, then the smaller hash.
    """
    known = sorted(set(commitments))
    if not known or not witnesses:
        return None
    votes = sum(bloom.holds(bits, known, shape).astype(int) for bits, shape in witnesses)
    best = int(votes.argmax())  # type: ignore[union-attr]
    return known[best] if int(votes[best]) >= quorum else None  # type: ignore[index]
