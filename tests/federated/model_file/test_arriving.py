"""What is said of a body as it comes is what reading it would say, however it was cut."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from folkmoot.federated.model_file.arriving import ArrivingFloats

DTYPES = ("float16", "float32", "float64")


def seen(body: bytes, cuts: list[int]) -> bool:
    floats = ArrivingFloats(len(body))
    ends = sorted({*(cut % len(body) for cut in cuts), 0, len(body)})
    for start, stop in pairwise(ends):
        floats.update(memoryview(body)[start:stop])
    return floats.finite


@settings(deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 300), min_size=1, max_size=3),
    st.sampled_from([0.0, np.nan, np.inf, -np.inf]),
    st.integers(0, 1 << 20),
    st.lists(st.integers(0, 1 << 20), max_size=40),
)
def test_one_value_that_is_not_finite_is_found(dtype, sizes, value, place, cuts) -> None:
    arrays = {f"a{n}": np.ones(size, dtype) for n, size in enumerate(sizes)}
    total = sum(sizes)
    if total:
        flat = np.ones(total, dtype)
        flat[place % total] = value
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        arrays = {f"a{n}": part for n, part in enumerate(parts)}
    assert seen(save(arrays), cuts) == bool(np.isfinite(value) or total == 0)


@pytest.mark.parametrize(
    "body",
    [
        save({"a": np.ones(9, np.float32), "b": np.ones(9)}),
        save({"a": np.ones(9, np.int32)}),
        save({f"a{n}": np.ones(1) for n in range(2000)}),
        b"no model at all, but long enough to have a header",
        bytes(8),
    ],
    ids=["two dtypes", "integers", "a long header", "nonsense", "an empty header"],
)
def test_of_anything_else_nothing_is_said(body: bytes) -> None:
    assert not seen(body, list(range(0, len(body), 7)))
    assert not seen(body, [])


def test_nothing_is_said_before_the_end() -> None:
    body = save({"a": np.ones(100)})
    floats = ArrivingFloats(len(body))
    floats.update(memoryview(body)[:-1])
    assert not floats.finite
    floats.update(memoryview(body)[-1:])
    assert floats.finite
