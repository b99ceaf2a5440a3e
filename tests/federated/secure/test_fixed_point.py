"""Fixed point is exact to its resolution, and can never overflow by configuration."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.federated.secure.config import SecureConfig
from folkmoot.federated.secure.fixed_point import Precision, decode, encode

PRECISION = Precision(128.0, 24)
values = st.lists(st.floats(-128, 128), min_size=1, max_size=5)


@given(st.lists(st.tuples(values, st.integers(1, 10**6)), min_size=1, max_size=6))
def test_the_mean_is_right_to_half_a_step(given_values):
    size = min(len(v) for v, _ in given_values)
    total = np.zeros(size, np.uint64)
    for row, weight in given_values:
        total += encode(np.array(row[:size]), weight, PRECISION)
    weights = [w for _, w in given_values]
    mean = decode(total, sum(weights), PRECISION)
    expected = np.average([v[:size] for v, _ in given_values], axis=0, weights=weights)
    assert np.abs(mean - expected).max() <= 0.5 * 2.0**-24 * (1 + 1e-6)


@pytest.mark.parametrize("bad", [128.1, -1e9, np.inf, np.nan])
def test_what_cannot_be_encoded_is_refused_not_bent(bad):
    with pytest.raises(ValueError, match="raise limit"):
        encode(np.array([0.0, bad]), 1, PRECISION)


def test_the_largest_cohort_at_every_limit_does_not_overflow():
    rules = SecureConfig()
    one = int(encode(np.array([rules.limit]), rules.max_samples, rules.precision)[0])
    assert one * 4096 < 2**63


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"threshold": 0.5}, "threshold"),
        ({"limit": 1e6}, "do not fit 64 bits"),
        ({"fraction_bits": 40}, "do not fit 64 bits"),
        ({"step_timeout": 0}, "step_timeout"),
        ({"max_samples": 0}, "max_samples"),
    ],
)
def test_rules_that_could_overflow_or_leak_are_refused(options, word):
    with pytest.raises(ValueError, match=word):
        SecureConfig(**options)
