"""A shuffle by arithmetic: a permutation, seeded, the same everywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.learning.data.permutation import Permutation

KNOWN = [4, 6, 2, 9, 1, 7, 3, 5, 8, 0]


@given(count=st.integers(1, 3000), seed=st.integers(0, 2**64))
def test_every_index_is_hit_once(count: int, seed: int):
    out = Permutation(count, seed)(np.arange(count))
    assert sorted(out) == list(range(count))


@given(count=st.integers(1, 2**61), index=st.integers(0, 2**61))
def test_one_index_costs_nothing_however_many_there_are(count: int, index: int):
    index %= count
    alone = Permutation(count, 1)(np.array([index]))
    assert 0 <= alone[0] < count
    assert Permutation(count, 1)(np.array([0, index]))[1] == alone[0]


def test_the_order_is_this_one_on_every_machine():
    assert Permutation(10, 7)(np.arange(10)).tolist() == KNOWN


def test_seeds_and_names_give_unrelated_orders():
    ids = np.arange(10_000)
    first, second = Permutation(10_000, 1)(ids), Permutation(10_000, 2)(ids)
    third = Permutation(10_000, 1, "pass 1")(ids)
    for a, b in ((first, second), (first, third), (first, ids)):
        assert (a == b).sum() < 10
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.05


def test_neighbours_are_spread():
    out = Permutation(100_000, 3)(np.arange(100_000))
    assert np.abs(np.diff(out)).mean() == pytest.approx(100_000 / 3, rel=0.02)


def test_a_permutation_of_nothing_is_refused():
    with pytest.raises(ValueError, match="0 things"):
        Permutation(0, 1)
