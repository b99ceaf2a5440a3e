"""FedAvg, clipping and FedBuff against formulas written out with exact or plain arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays

from folkmoot.federated.aggregate import Closing, ModelUpdate
from folkmoot.federated.aggregate.clipped import Clipped
from folkmoot.federated.aggregate.fedavg import FedAvg
from folkmoot.federated.aggregate.fedbuff import FedBuff
from folkmoot.federated.aggregate.in_memory import combine_arrays
from folkmoot.federated.aggregate.spans import CombineFailed
from folkmoot.federated.model_file.layout import BLOCK
from folkmoot.federated.model_file.memory import MemoryModel

floats = st.floats(-1e6, 1e6, width=32)
vectors = numpy_arrays(np.float32, 5, elements=floats)
updates = st.lists(st.tuples(vectors, st.integers(1, 1 << 29)), min_size=1, max_size=7)


def models(pairs):
    return [({"w": values}, samples) for values, samples in pairs]


@given(updates)
def test_fedavg_is_the_exact_weighted_mean_rounded(pairs):
    model = combine_arrays(FedAvg(), {"w": np.zeros(5, np.float32)}, models(pairs)).model["w"]
    total = sum(samples for _, samples in pairs)
    for column, value in enumerate(model):
        exact = sum(Fraction(float(v[column])) * n for v, n in pairs) / total
        largest = max(abs(float(v[column])) for v, _ in pairs)
        # Half a unit in the last place of float32, and float64's own rounding on the way there.
        assert abs(Fraction(float(value)) - exact) <= np.spacing(
            np.float32(abs(value))
        ) * 0.500001 + (1e-14 * largest)


@given(vectors)
def test_a_single_update_is_returned_unchanged(values):
    model = combine_arrays(FedAvg(), None, [({"w": values}, 3)]).model["w"]
    assert np.array_equal(model, values)


def test_in_the_initial_round_everybody_weighs_the_same():
    pairs = [({"w": np.float32([1.0])}, 0), ({"w": np.float32([3.0])}, 0)]
    assert combine_arrays(FedAvg(), None, pairs).model["w"] == [2.0]


def test_every_block_of_a_long_array_is_combined():
    rng = np.random.default_rng(1)
    size = 3 * BLOCK + 17
    pairs = [({"w": rng.standard_normal(size, np.float32)}, n) for n in (1, 2, 5)]
    model = combine_arrays(FedAvg(), None, pairs).model["w"]
    expected = sum(n * arrays["w"].astype(np.float64) for arrays, n in pairs) / 8
    assert np.array_equal(model, expected.astype(np.float32))


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?"])
def test_every_dtype_keeps_its_type_and_integers_take_the_nearest(dtype):
    pairs = [({"w": np.array([0, 1, 1], dtype)}, 1), ({"w": np.array([0, 0, 1], dtype)}, 2)]
    model = combine_arrays(FedAvg(), None, pairs).model["w"]
    assert model.dtype == np.dtype(dtype)
    expected = [0, 1 / 3, 1] if np.dtype(dtype).kind == "f" else [0, 0, 1]
    assert np.allclose(model.astype(float), expected, rtol=1e-3)


def test_the_largest_integers_do_not_wrap_around():
    top = np.iinfo(np.int64).max
    model = combine_arrays(FedAvg(), None, [({"w": np.array([top, -top - 1])}, 1)] * 3).model["w"]
    assert model[0] > 2**62
    assert model[1] < -(2**62)


def test_an_update_of_another_shape_is_named_and_not_combined():
    pairs = [({"w": np.zeros(3, np.float32)}, 1), ({"w": np.zeros(4, np.float32)}, 1)]
    with pytest.raises(CombineFailed, match=r"000001.*shape"):
        combine_arrays(FedAvg(), None, pairs)


def test_an_update_that_turned_bad_after_its_check_is_not_written():
    pairs = [({"w": np.float32([1.0, np.nan])}, 1)]
    with pytest.raises(CombineFailed, match="'w' at flat position 1"):
        combine_arrays(FedAvg(), None, pairs)


@given(vectors, updates, st.floats(0.01, 1e7))
def test_clipping_bounds_each_step_and_keeps_its_direction(start, pairs, limit):
    model = combine_arrays(Clipped(clip_norm=limit), {"w": start}, models(pairs)).model["w"]
    base, total = start.astype(float), sum(samples for _, samples in pairs)
    expected = base.copy()
    for values, samples in pairs:
        step = values - base
        norm = np.linalg.norm(step)
        expected += samples / total * step * (min(1.0, limit / norm) if norm else 1.0)
    assert np.allclose(model, expected, rtol=1e-6, atol=1e-6)
    assert (
        np.linalg.norm(model.astype(float) - base) <= limit * (1 + 1e-6) + 1e-6 * np.abs(base).max()
    )


def test_one_huge_update_moves_the_model_no_further_than_the_limit():
    honest, liar = {"w": np.float32([1.0, 0.0])}, {"w": np.float32([0.0, 1e30])}
    result = combine_arrays(
        Clipped(clip_norm=1.0), {"w": np.zeros(2, np.float32)}, [(honest, 1), (liar, 1)]
    )
    assert np.allclose(result.model["w"], [0.5, 0.5])
    assert result.figures["clipped"] == 1


def buffered(strategy, reference, given):
    out = MemoryModel.empty(reference.layout)
    strategy.combine(Closing(reference, given, None, out, None, bytes(32)))
    return out.arrays["w"]


def test_a_stale_step_counts_from_its_own_base_and_counts_less():
    old, new = MemoryModel({"w": np.float32([0.0])}), MemoryModel({"w": np.float32([10.0])})
    given = [
        ModelUpdate("a", 1, MemoryModel({"w": np.float32([12.0])}), staleness=0, base=new),
        ModelUpdate("b", 1, MemoryModel({"w": np.float32([4.0])}), staleness=3, base=old),
    ]
    # 10 + (12 − 10) / 2 + (4 − 0) · 1/√4 / 2
    assert buffered(FedBuff(), new, given) == [12.0]


def test_fresh_updates_make_fedbuff_equal_to_fedavg():
    rng = np.random.default_rng(5)
    base = {"w": rng.standard_normal(100, np.float32)}
    pairs = [({"w": rng.standard_normal(100, np.float32)}, n) for n in (3, 4, 9)]
    ours = combine_arrays(FedBuff(), base, pairs).model["w"]
    assert np.allclose(ours, combine_arrays(FedAvg(), base, pairs).model["w"], rtol=1e-6, atol=1e-7)
