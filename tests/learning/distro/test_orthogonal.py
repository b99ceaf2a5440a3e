"""The treatment `orthogonal`: equal singular values, and no bit that depends on a sum's order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.learning.distro.orthogonal import _newton_schulz, orthogonal


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
    after = torch.linalg.svdvals(orthogonal(x)) / 8
    assert after.max() < 1.25
    strong = before > 0.1 * before[:, :1]
    assert after[strong].min() > 0.6


@settings(max_examples=30, deadline=None)
@given(
    h=st.integers(1, 64), w=st.integers(1, 64), entries=st.integers(1, 200), seed=st.integers(0, 99)
)
def test_the_order_of_sums_does_not_change_a_bit(h: int, w: int, entries: int, seed: int) -> None:
    x = chunks(3, h, w, entries, seed)
    g = torch.Generator().manual_seed(seed)
    rows, columns = torch.randperm(h, generator=g), torch.randperm(w, generator=g)
    shuffled = orthogonal(x[:, rows][:, :, columns].contiguous())
    assert torch.equal(shuffled, orthogonal(x)[:, rows][:, :, columns])


@settings(max_examples=30, deadline=None)
@given(entries=st.integers(1, 60), seed=st.integers(0, 99))
def test_leaving_out_empty_rows_and_columns_changes_no_bit(entries: int, seed: int) -> None:
    x = chunks(3, 48, 64, entries, seed)
    assert torch.equal(orthogonal(x), _newton_schulz(x, tall=False) * 8)


def test_a_chunk_of_zeros_stays_so() -> None:
    assert torch.equal(orthogonal(torch.zeros(2, 8, 16)), torch.zeros(2, 8, 16))


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e12])
def test_only_the_direction_counts(size: float) -> None:
    x = chunks(2, 64, 64, 40, seed=1)
    torch.testing.assert_close(orthogonal(x * size), orthogonal(x), rtol=0, atol=0.02)


def test_a_vector_becomes_itself_with_mean_square_near_one() -> None:
    x = chunks(4, 1, 64, 64, seed=3)
    y = orthogonal(x)
    assert torch.nn.functional.cosine_similarity(x, y, dim=2).min() > 0.999
    assert ((y.square().mean(dim=2).sqrt() - 1).abs() < 0.35).all()
