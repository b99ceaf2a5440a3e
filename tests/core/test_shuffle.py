"""Each vectorised permutation equals its one-at-a-time definition, index by index."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.shuffle import lcg_shuffle, swap_or_not, swap_or_not_all, swap_or_not_few

SEEDS = st.binary(min_size=32, max_size=32)


@given(st.integers(1, 600), SEEDS, st.data())
def test_all_at_once_is_one_at_a_time(total: int, seed: bytes, data: st.DataObject) -> None:
    places = swap_or_not_all(total, seed)
    assert sorted(places.tolist()) == list(range(total))
    for index in data.draw(st.lists(st.integers(0, total - 1), min_size=1, max_size=8)):
        assert swap_or_not(index, total, seed) == places[index]


@pytest.mark.parametrize("total", [1, 2, 3, 7, 32, 33, 255, 256, 1000])
def test_every_index_moves_alike(total: int) -> None:
    seed = sha256(bytes([total % 256])).digest()
    one_at_a_time = [swap_or_not(index, total, seed) for index in range(total)]
    assert swap_or_not_all(total, seed).tolist() == one_at_a_time
    if total <= 256:
        assert list(swap_or_not_few(total, seed)) == one_at_a_time


@given(st.integers(0, 300), st.integers(0, 2**64 - 1))
def test_a_shuffle_loses_and_repeats_nothing(count: int, seed: int) -> None:
    order = lcg_shuffle(count, seed)
    assert sorted(order) == list(range(count))
    assert order == lcg_shuffle(count, seed)


@pytest.mark.parametrize("index", [-1, 5, 99])
def test_an_index_outside_is_refused(index: int) -> None:
    with pytest.raises(ValueError, match=f"index {index} is outside of 0..4"):
        swap_or_not(index, 5, bytes(32))
