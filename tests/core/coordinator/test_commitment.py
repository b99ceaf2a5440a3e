"""Which of several commitments counts: the same on every client, whatever it heard first."""

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core import bloom
from folkmoot.core.coordinator.assignment import Span
from folkmoot.core.coordinator.commitment import (
    commitment_hash,
    count_votes,
    select_consensus_commitment_by_witnesses,
)

HASHES = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=5, unique=True)


def plain_choice(
    known: Sequence[bytes], witnesses: Sequence[tuple[bytes, bloom.Shape]], quorum: int
) -> bytes | None:
    votes = {
        commitment: sum(
            bool(bloom.holds(bits, [commitment], shape)[0]) for bits, shape in witnesses
        )
        for commitment in known
    }
    best = min(known, key=lambda commitment: (-votes[commitment], commitment))
    return best if votes[best] >= quorum else None


@given(
    HASHES, st.lists(st.integers(0, 31), min_size=1, max_size=8), st.integers(1, 8), st.randoms()
)
def test_the_choice_does_not_depend_on_the_order(
    known: list[bytes], saw: list[int], quorum: int, random: Random
) -> None:
    witnesses = []
    for owner, bits in enumerate(saw):
        shape = bloom.bloom_shape(len(known), 3, owner)
        held = [commitment for k, commitment in enumerate(known) if bits >> k & 1]
        witnesses.append((bloom.fill(held, shape) if held else bytes(shape.bits // 8), shape))
    votes = count_votes(known, witnesses)
    chosen = select_consensus_commitment_by_witnesses(known, votes, quorum)
    assert chosen == plain_choice(known, witnesses, quorum)
    random.shuffle(known)
    random.shuffle(witnesses)
    again = count_votes([*known, *known], witnesses)
    assert again == votes
    assert select_consensus_commitment_by_witnesses([*known, *known], again, quorum) == chosen


def test_nothing_is_chosen_from_nothing() -> None:
    shape = bloom.bloom_shape(1, 0, 0)
    assert count_votes([], [(bytes(8), shape)]) == {}
    assert select_consensus_commitment_by_witnesses([], {}, 1) is None
    unseen = count_votes([bytes(32)], [])
    assert select_consensus_commitment_by_witnesses([bytes(32)], unseen, 1) is None


def test_a_commitment_stands_for_its_step_its_samples_and_its_bytes() -> None:
    spans = [Span(0, 4), Span(8, 9)]
    made = {
        commitment_hash(1, spans, b"bytes"),
        commitment_hash(2, spans, b"bytes"),
        commitment_hash(1, [Span(0, 4), Span(8, 10)], b"bytes"),
        commitment_hash(1, spans, b"other"),
    }
    assert len(made) == 4
