"""The CPU's kernel has the bits of distro/orthogonal.py, however full a chunk is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from folkmoot.learning.methods.distro.cpu.orthogonal import orthogonalise_chunk
from folkmoot.learning.methods.distro.orthogonal import (
    largest_integer,
    orthogonalise,
    output_factors,
)

SHARE = np.float32(1 / 3)


def compiled(x, h, w):
    scalars = tuple(np.float32(s) for s in (largest_integer(max(h, w)), *output_factors(h, w)))
    scratch = np.full(2 * min(h, w) ** 2, 777, np.float32)  # what was not written must not be read
    made, _ = orthogonalise_chunk(
        x.copy(), np.full(h * w, 777, np.float32), h, w, SHARE, scalars, scratch,
        np.full((3, 64), -1, np.int64),
    )  # fmt: skip
    return made


def expected(x, h, w):
    return orthogonalise(torch.from_numpy(x * SHARE).view(1, h, w)).numpy().reshape(-1)


def chunk(entries, size, draw, signs):
    x = np.zeros(size, np.float32)
    places = draw.choice(size, min(entries, size), replace=False)
    values = draw.standard_normal(len(places)).astype(np.float32)
    x[places] = np.sign(values) if signs else values * np.float32(10.0 ** draw.integers(-20, 20))
    return x


@pytest.mark.parametrize(("h", "w"), [(64, 64), (48, 64), (64, 48), (1, 64), (29, 64)])
@pytest.mark.parametrize("entries", [0, 1, 2, 32, 96, 400, 1000, 1100, 2500, 4096])
def test_compiled_and_plain_agree(h, w, entries):
    draw = np.random.default_rng(entries)
    for signs in (True, False):
        x = chunk(entries, h * w, draw, signs)
        np.testing.assert_array_equal(compiled(x, h, w), expected(x, h, w))


@pytest.mark.parametrize("side", [3, 20, 40, 60])
@pytest.mark.parametrize("part", [0.1, 0.3, 0.9])
def test_entries_that_keep_to_some_rows_and_columns_agree(side, part):
    """Gradients do: low frequencies weigh most. What is empty must be empty in every product."""
    draw = np.random.default_rng(side)
    for _ in range(4):
        x = np.zeros((64, 64), np.float32)
        rows, columns = (np.sort(draw.choice(64, side, replace=False)) for _ in range(2))
        x[np.ix_(rows, columns)] = (draw.random((side, side)) < part) * draw.standard_normal(side)
        np.testing.assert_array_equal(
            compiled(x.reshape(-1), 64, 64), expected(x.reshape(-1), 64, 64)
        )


def test_entries_in_one_row_or_column_agree():
    for places in (slice(64 * 5, 64 * 6), slice(5, None, 64)):
        x = np.zeros(4096, np.float32)
        x[places] = np.linspace(-1, 1, 64, dtype=np.float32)
        np.testing.assert_array_equal(compiled(x, 64, 64), expected(x, 64, 64))


def test_entries_that_round_to_nothing_agree():
    x = np.zeros(4096, np.float32)
    x[[7, 70, 700]] = 1.0, 1e-9, -1e-9
    np.testing.assert_array_equal(compiled(x, 64, 64), expected(x, 64, 64))


@pytest.mark.parametrize("value", [np.inf, np.nan, 3e38, 1e-44])
def test_a_chunk_out_of_all_proportion_moves_nothing(value):
    x = np.zeros(4096, np.float32)
    x[9] = value
    assert not compiled(x, 64, 64).any()
