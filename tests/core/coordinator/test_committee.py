"""Roles that everyone computes from the seed: all at once or one by one, and provable."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from folkmoot.core.coordinator.committee import (
    CommitteeSelection,
    checkpointers,
    is_checkpointer,
)

SEEDS = st.integers(0, 2**64 - 1)


@st.composite
def selections(draw: st.DrawFn) -> CommitteeSelection:
    total = draw(st.integers(1, 60))
    return CommitteeSelection(
        draw(st.integers(0, total)),
        draw(st.integers(0, total)),
        draw(st.integers(0, 100)),
        total,
        draw(SEEDS),
    )


@given(selections())
def test_all_at_once_is_one_by_one(selection: CommitteeSelection) -> None:
    everyone = range(selection.total)
    witnesses = [selection.get_witness(index) for index in everyone]
    assert [proof.position for proof in witnesses] == selection.witness_positions.tolist()
    assert [proof.index for proof in witnesses if proof.witness] == selection.witness_indices()
    assert len(selection.witness_indices()) == selection.witnesses


@given(selections(), st.integers(-5, 70), st.integers(-5, 70))
def test_a_proof_holds_only_as_it_was_dealt(
    selection: CommitteeSelection, index: int, position: int
) -> None:
    mine = selection.get_witness(index % selection.total)
    assert selection.verify_witness(mine)
    assert not selection.verify_witness(replace(mine, witness=not mine.witness))
    forged = replace(mine, index=index, position=position)
    honest = 0 <= index < selection.total and selection.get_witness(index) == forged
    assert selection.verify_witness(forged) == honest


@given(st.integers(1, 90), SEEDS)
def test_a_third_are_checkpointers(total: int, seed: int) -> None:
    elected = [index for index in range(total) if is_checkpointer(index, total, seed)]
    assert len(elected) == checkpointers(total) == max(1, total // 3)
    assert not is_checkpointer(-1, total, seed)
    assert not is_checkpointer(total, total, seed)


def test_every_client_is_elected_sooner_or_later() -> None:
    """In 200 rounds of 4 witnesses among 20, each is elected about 40 times."""
    times = [0] * 20
    for seed in range(200):
        for index in CommitteeSelection(0, 4, 0, 20, seed).witness_indices():
            times[index] += 1
    assert sum(times) == 800
    assert 15 < min(times) <= max(times) < 75
