"""Mixtures keep their proportions in every prefix, and any sample is found alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.learning.data.mixture import Drawn, Mixture, quotas
from folkmoot.learning.data.source import DataError


class Numbers:
    """Sample i of source n is [n, i]."""

    def __init__(self, number: int, count: int) -> None:
        self.number, self.count, self.name = number, count, f"source {number}"

    def samples(self, ids):
        assert ids.max() < self.count
        return np.stack([np.full_like(ids, self.number), ids], axis=1)


def mixture(weights, count=1_000_000) -> Mixture:
    return Mixture([Numbers(n, count) for n in range(len(weights))], weights)


@settings(deadline=None, max_examples=50)
@given(weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=5))
def test_every_prefix_holds_each_source_in_proportion(weights: list[float]):
    owners = mixture(weights).samples(np.arange(2000))[:, 0]
    shares = np.array(quotas(weights)) / sum(quotas(weights))
    for prefix in (1, 10, 100, 1999):
        drawn = np.bincount(owners[:prefix], minlength=len(weights))
        assert np.abs(drawn - shares * prefix).max() <= 1 + len(weights) / 2


def test_each_source_is_used_in_order_without_gaps_or_repeats():
    found = mixture([3, 1, 0.5]).samples(np.arange(5000))
    for number in range(3):
        own = found[found[:, 0] == number, 1]
        assert own.tolist() == list(range(len(own)))


def test_a_sample_is_the_same_asked_alone_or_among_others():
    mixed = mixture([0.7, 0.2, 0.1])
    together = mixed.samples(np.arange(1000))
    order = np.random.default_rng(1).permutation(1000)
    assert np.array_equal(mixed.samples(order), together[order])
    assert np.array_equal(mixed.samples(np.array([777])), together[777:778])


def test_three_to_one_is_spread_evenly():
    assert mixture([3, 1]).samples(np.arange(8))[:, 0].tolist() == [0, 0, 1, 0, 0, 0, 1, 0]


def test_a_mixture_ends_when_its_first_source_does():
    mixed = Mixture([Numbers(0, 100), Numbers(1, 5)], [3, 1])
    found = mixed.samples(np.arange(mixed.count))
    assert (found[:, 0] == 1).sum() == 5
    parts = [Drawn(Numbers(0, 100), 1, False, False), Drawn(Numbers(1, 5), 1, False, False)]
    with pytest.raises(DataError, match="source 1: sample 5 was asked for"):
        Mixture(parts, [3, 1]).samples(np.arange(mixed.count + 1))


@pytest.mark.parametrize("weights", [[], [1, 0], [1, -1], [float("nan")], [float("inf"), 1]])
def test_weights_that_mean_nothing_are_refused(weights: list[float]):
    with pytest.raises(ValueError, match="positive numbers"):
        quotas(weights)


def test_without_wrap_running_out_is_an_error():
    drawn = Drawn(Numbers(0, 10), seed=1, shuffle=True, wrap=False)
    assert sorted(drawn.samples(np.arange(10))[:, 1]) == list(range(10))
    with pytest.raises(DataError, match="there are only 10; add data, or set wrap"):
        drawn.samples(np.array([3, 10]))


def test_with_wrap_each_pass_has_everything_in_another_order():
    drawn = Drawn(Numbers(0, 50), seed=1, shuffle=True, wrap=True)
    passes = drawn.samples(np.arange(150))[:, 1].reshape(3, 50)
    assert all(sorted(one) == list(range(50)) for one in passes)
    assert len({tuple(one) for one in passes.tolist()}) == 3
