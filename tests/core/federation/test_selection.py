"""Who is selected: sizes, no repetition, the same for everybody who knows the seed."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.federation import Rules
from folkmoot.core.federation.selection import in_order, take

people = st.sets(st.text("abcdef0123456789", min_size=1, max_size=6), min_size=1, max_size=40)
decimals = st.integers(1, 100).map(lambda percent: percent / 100)


@given(people, decimals)
def test_a_round_needs_the_ceiling_of_the_fraction(ids: set[str], fraction: float) -> None:
    rules = Rules(rounds=1, fraction_participants=fraction)
    exact = Fraction(round(fraction * 100), 100)
    assert rules.goal(len(ids)) == ceil(len(ids) * exact)


@given(people, st.integers(0, 50), st.integers(0, 2**64 - 1), st.integers(0, 99))
def test_nobody_is_taken_twice(ids: set[str], count: int, seed: int, round_: int) -> None:
    for controller in ("random", "ordered"):
        taken = take(controller, ids, count, round_, seed)
        assert len(taken) == len(set(taken)) == min(count, len(ids))
        assert set(taken) <= ids
    assert set(take("all", ids, count, round_, seed)) == ids


@given(people, st.integers(0, 2**64 - 1))
def test_a_departure_does_not_change_the_order_of_the_others(ids: set[str], seed: int) -> None:
    order = in_order("random", ids, 3, seed)
    gone = order[0]
    assert in_order("random", ids - {gone}, 3, seed) == order[1:]


def test_every_participant_gets_its_turn() -> None:
    ids, seed = [f"p{i}" for i in range(10)], 7
    counts = dict.fromkeys(ids, 0)
    for round_ in range(2000):
        for id in take("random", ids, 3, round_, seed):
            counts[id] += 1
    assert all(500 < count < 700 for count in counts.values())


@given(st.integers(1, 200), decimals)
def test_the_connected_always_suffice_for_the_minimum(least: int, fraction: float) -> None:
    rules = Rules(rounds=1, min_participants=least, fraction_participants=fraction)
    assert rules.goal(rules.min_connected) >= least


@pytest.mark.parametrize(
    ("quorum", "quarantined", "enough"),
    [(1.0, 0, 10), (1.0, 3, 7), (1.0, 9, 4), (0.5, 0, 5), (0.5, 4, 2), (0.01, 0, 1)],
)
def test_a_quorum_is_a_share_and_never_below_the_minimums(
    quorum: float, quarantined: int, enough: int
) -> None:
    rules = Rules(rounds=1, min_participants=4, quorum=quorum)
    assert rules.enough(10, quarantined) == enough
