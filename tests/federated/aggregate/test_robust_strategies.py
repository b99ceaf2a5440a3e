"""Median, trimmed mean and Krum against plain references, and against liars."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays

from folkmoot.federated.aggregate.in_memory import combine_arrays
from folkmoot.federated.aggregate.krum import Krum
from folkmoot.federated.aggregate.sorting import NETWORK_ROWS, comparators, sort_rows
from folkmoot.federated.aggregate.trimmed_mean import Median, TrimmedMean
from folkmoot.federated.model_file.layout import BLOCK

matrices = st.integers(1, 12).flatmap(
    lambda n: numpy_arrays(np.float32, (n, 4), elements=st.floats(-1e6, 1e6, width=32))
)


def rows(matrix, samples=1):
    return [({"w": row.copy()}, samples) for row in matrix]


@pytest.mark.parametrize("count", range(1, 11))
def test_the_network_sorts_every_pattern_of_zeros_and_ones(count):
    """By the 0-1 principle it then sorts everything."""
    patterns = np.array(list(itertools.product([0, 1], repeat=count)), np.float32).T.copy()
    result, _ = sort_rows(list(patterns.copy()), np.empty(patterns.shape[1], np.float32))
    assert np.array_equal(np.stack(result), np.sort(patterns, axis=0))


@pytest.mark.parametrize("count", [33, 64, NETWORK_ROWS, NETWORK_ROWS + 1])
def test_many_rows_sort_like_numpy_on_both_sides_of_the_switch(count):
    matrix = np.random.default_rng(count).standard_normal((count, 50)).astype(np.float32)
    result, _ = sort_rows(list(matrix.copy()), np.empty(50, np.float32))
    assert np.array_equal(np.stack(result), np.sort(matrix, axis=0))


def test_the_network_stays_small():
    assert len(comparators(16)) == 63
    assert len(comparators(50)) < 50 * 50 // 4


@given(matrices)
def test_the_median_is_numpys(matrix):
    model = combine_arrays(Median(), None, rows(matrix)).model["w"]
    assert np.array_equal(model, np.median(matrix.astype(np.float64), axis=0).astype(np.float32))


@given(matrices, st.floats(0, 0.49))
def test_the_trimmed_mean_is_the_mean_of_the_middle(matrix, trim):
    model = combine_arrays(TrimmedMean(trim=trim), None, rows(matrix)).model["w"]
    cut = int(trim * len(matrix))
    middle = np.sort(matrix.astype(np.float64), axis=0)[cut : len(matrix) - cut]
    assert np.allclose(model, middle.mean(axis=0), rtol=1e-6, atol=1e-6)


def test_the_median_covers_arrays_longer_than_a_block_and_of_two_dtypes():
    rng = np.random.default_rng(2)
    given = [
        ({"w": rng.standard_normal(2 * BLOCK + 3, np.float32), "n": rng.integers(0, 99, 5)}, 1)
        for _ in range(5)
    ]
    model = combine_arrays(Median(), None, given).model
    for name in ("w", "n"):
        assert np.array_equal(model[name], np.median([a[name] for a, _ in given], axis=0))


def slow_krum(matrix, byzantine, keep):
    """The definition, pair by pair."""
    count = len(matrix)
    nearest = min(max(1, count - byzantine - 2), count - 1)
    scores = []
    for i in range(count):
        distances = sorted(
            float(np.sum((matrix[i].astype(float) - matrix[j]) ** 2))
            for j in range(count)
            if j != i
        )
        scores.append(sum(distances[:nearest]))
    best = sorted(range(count), key=lambda index: scores[index])[:keep]
    return matrix[sorted(best)].astype(float).mean(axis=0), sorted(scores)


@given(st.integers(3, 10), st.integers(0, 3), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_krum_chooses_as_the_definition_does(count, byzantine, keep, seed):
    rng = np.random.default_rng(seed)
    matrix = (1000 + rng.standard_normal((count, 6))).astype(np.float32)
    base = {"w": np.full(6, 1000, np.float32)}
    model = combine_arrays(Krum(byzantine=byzantine, keep=keep), base, rows(matrix)).model["w"]
    expected, scores = slow_krum(matrix, byzantine, keep)
    if keep < count and scores[keep] - scores[keep - 1] < 1e-6 * scores[keep]:
        return  # a tie: two answers are right
    assert np.allclose(model, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "strategy", [Median(), TrimmedMean(trim=0.3), Krum(byzantine=3), Krum(byzantine=3, keep=5)]
)
def test_three_liars_of_ten_cannot_move_the_model(strategy):
    rng = np.random.default_rng(7)
    honest = 1 + 0.01 * rng.standard_normal((7, 200))
    lies = np.concatenate([np.full((2, 200), 1e9), np.full((1, 200), -1e12)])
    matrix = np.concatenate([lies, honest]).astype(np.float32)
    model = combine_arrays(
        strategy, {"w": np.zeros(200, np.float32)}, rows(matrix, samples=10)
    ).model["w"]
    assert np.abs(model - 1).max() < 0.05


def test_krum_says_when_there_are_too_few_for_its_theorem():
    few = combine_arrays(Krum(byzantine=1), None, rows(np.eye(4, dtype=np.float32)))
    enough = combine_arrays(Krum(byzantine=1), None, rows(np.eye(5, dtype=np.float32)))
    assert few.figures["byzantine_bound_holds"] == 0
    assert enough.figures["byzantine_bound_holds"] == 1
