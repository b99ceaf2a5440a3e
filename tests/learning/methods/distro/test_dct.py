import numpy as np
import pytest
import scipy.fft
import torch

from folkmoot.learning.methods.distro.dct import (
    cosines,
    dct_chunks,
    halving_factors,
    idct_by_products,
    idct_chunks,
    scales,
)
from folkmoot.learning.methods.distro.reference import topk


def test_the_public_designs_known_answers():
    eye = dct_chunks(torch.eye(4).view(4, 1, 4)).view(4, 4)
    expected = [[0.5, 0.6533, 0.5, 0.2706], [0.5, 0.2706, -0.5, -0.6533],
                [0.5, -0.2706, -0.5, 0.6533], [0.5, -0.6533, 0.5, -0.2706]]  # fmt: skip
    assert np.allclose(eye, expected, atol=5e-5)
    ramp = dct_chunks(torch.arange(8.0).view(1, 1, 8)).view(-1)
    assert np.allclose(ramp, [9.8995, -6.4423, 0, -0.67345, 0, -0.2009, 0, -0.0507], atol=5e-5)


def test_the_known_answer_for_the_two_largest():
    x = torch.tensor([[0.5223, 0.9625, 0.5487, 0.2152, 0.2161, 0.0363, 0.4944, 0.0974]])
    assert topk(x, 2).tolist() == [[1, 2]]


@pytest.mark.parametrize("h", [1, 2, 3, 12, 29, 48, 50, 61, 64, 128])
@pytest.mark.parametrize("w", [1, 7, 64])
def test_every_length_agrees_with_scipy_and_comes_back(h, w):
    x = torch.randn(3, h, w, generator=torch.Generator().manual_seed(h * w))
    c = dct_chunks(x)
    expected = scipy.fft.dctn(x.double().numpy(), axes=(1, 2), norm="ortho").transpose(0, 2, 1)
    assert np.abs(c.numpy() - expected).max() < 2e-5
    assert (idct_chunks(c) - x).abs().max() < 2e-5
    assert (idct_by_products(c) - x).abs().max() < 2e-5


def constants(n):
    """Each table of dct.py beside its values in float64."""
    half = np.arange(n // 2) + 0.5
    yield halving_factors(n), 0.5 / np.cos(half * (np.pi / n))
    yield scales(n)[:2], np.sqrt(np.array([1.0, 2.0][:n]) / n)
    if n % 2:
        frequency, position = np.mgrid[0:n, 0:n]
        yield cosines(n), np.cos((2 * position + 1) * frequency % (4 * n) * (np.pi / (2 * n)))


def test_no_constant_depends_on_how_a_machines_cosine_rounds():
    """Constants are rounded from float64. None lies so near the middle between two float32 values
    that a cosine which is off by some last places would round it to the other."""
    for n in range(1, 257):
        for table, exact in constants(n):
            exact[np.abs(exact) < 1e-12] = 0.0
            for off in (1 - 2e-15, 1 + 2e-15):
                assert ((exact * off).astype(np.float32) == table).all(), n
