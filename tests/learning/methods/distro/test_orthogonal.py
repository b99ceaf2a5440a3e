"""The treatment `orthogonal`: equal singular values, and no bit that depends on a sum's order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.learning.methods.distro.orthogonal import largest_integer, orthogonalise


def chunks(count: int, h: int, w: int, entries: int, seed: int) -> torch.Tensor:
    """Like a mean of payloads: a few coefficients each, of any size."""
    g = torch.Generator().manual_seed(seed)
    x = torch.zeros(count, h * w)
    places = torch.rand(count, h * w, generator=g).argsort(dim=1)[:, :entries]
    x.scatter_(1, places, torch.randn(count, min(entries, h * w), generator=g))
    return x.view(count, h, w)


@pytest.mark.parametrize("entries", [8, 32, 128, 4096])
def test_directions_that_were_sent_weigh_the_same(entries: int) -> None:
    x = chunks(6, 64, 64, entries, seed=entries)
    before = torch.linalg.svdvals(x)
    after = torch.linalg.svdvals(orthogonalise(x)) / 8
    assert after.max() < 1.75
    strong = before > 0.3 * before[:, :1]
    assert after[strong].min() > 0.3
    assert spread(after[strong]) < spread(before[strong])


def spread(x: torch.Tensor) -> float:
    return float(x.std() / x.mean())


@settings(max_examples=30)
@given(
    h=st.integers(1, 64), w=st.integers(1, 64), entries=st.integers(1, 200), seed=st.integers(0, 99)
)
def test_the_order_of_sums_does_not_change_a_bit(h: int, w: int, entries: int, seed: int) -> None:
    x = chunks(3, h, w, entries, seed)
    g = torch.Generator().manual_seed(seed)
    rows, columns = torch.randperm(h, generator=g), torch.randperm(w, generator=g)
    shuffled = orthogonalise(x[:, rows][:, :, columns].contiguous())
    assert torch.equal(shuffled, orthogonalise(x)[:, rows][:, :, columns])


@pytest.mark.parametrize("columns", [1, 3, 63, 64, 65, 200, 256])
def test_the_sums_of_the_fullest_chunk_are_exact(columns: int) -> None:
    assert columns * largest_integer(columns) ** 2 <= 2**24
    x = torch.ones(1, columns, columns)
    x[0, :, ::2] = -1
    rows = torch.randperm(columns, generator=torch.Generator().manual_seed(0))
    assert torch.equal(orthogonalise(x[:, rows].contiguous()), orthogonalise(x)[:, rows])


@pytest.mark.parametrize("size", [1e-44, 3e38, float("inf")])
def test_a_chunk_out_of_all_proportion_moves_nothing(size: float) -> None:
    x = chunks(2, 64, 64, 40, seed=1)
    x[0, 3, 5] = size
    if size < 1:
        x[0] = x[0].sign() * size
    y = orthogonalise(x)
    assert not y[0].any()
    assert torch.equal(y[1:], orthogonalise(x[1:]))


def test_a_chunk_of_zeros_stays_so() -> None:
    assert torch.equal(orthogonalise(torch.zeros(2, 8, 16)), torch.zeros(2, 8, 16))


@pytest.mark.parametrize("size", [1e-28, 1.0, 1e12])
def test_only_the_direction_counts(size: float) -> None:
    x = chunks(2, 64, 64, 40, seed=1)
    torch.testing.assert_close(orthogonalise(x * size), orthogonalise(x), rtol=0, atol=0.02)


def test_a_vector_becomes_itself_with_mean_square_near_one() -> None:
    x = chunks(4, 1, 64, 64, seed=3)
    y = orthogonalise(x)
    assert torch.nn.functional.cosine_similarity(x, y, dim=2).min() > 0.999
    assert ((y.square().mean(dim=2).sqrt() - 1).abs() < 0.01).all()
