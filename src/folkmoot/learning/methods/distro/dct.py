"""The orthonormal DCT-II and its inverse by Lee's recursion, in plain torch operations.

An even length n splits into two transforms of n / 2 (sums and scaled differences of mirrored rows);
an odd length is multiplied out, term by term in ascending order. Every operation is one separately
rounded addition or multiplication in float32, so the CPU's kernels that follow the same recursion
(cpu/dct64.py) produce the same bits, and so does any device whose arithmetic is IEEE 754.

A chunk x[y, x] becomes coefficients c[fx, fy]: the transform over the columns comes last and is not
transposed back. A coefficient's index in its chunk is therefore fx · h + fy.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

Floats = npt.NDArray[np.float32]


@lru_cache(maxsize=256)
def halving_factors(n: int) -> Floats:
    """1 / (2 cos((i + ½) π / n)) for i < n / 2: what scales the differences."""
    i = np.arange(n // 2, dtype=np.float64)
    return (0.5 / np.cos((i + 0.5) * (np.pi / n))).astype(np.float32)


@lru_cache(maxsize=256)
def cosines(n: int) -> Floats:
    """The unscaled DCT-II as a matrix, [frequency, position]; used for odd lengths."""
    frequency, position = np.mgrid[0:n, 0:n]
    angles = ((2 * position + 1) * frequency % (4 * n)) * (np.pi / (2 * n))
    exact = np.cos(angles)
    exact[np.abs(exact) < 1e-12] = 0.0  # a quarter turn; what a cosine leaves there is noise
    return np.asarray(exact, dtype=np.float32)


@lru_cache(maxsize=256)
def scales(n: int) -> Floats:
    """What makes the transform orthonormal, per frequency."""
    out = np.full(n, np.sqrt(2.0 / n), dtype=np.float64)
    out[:1] = np.sqrt(1.0 / n)
    return out.astype(np.float32)


def _rows(table: Floats, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(table).to(like.device).unsqueeze(-1)


def _multiply_out(matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """matrix @ x, summed from the first term to the last."""
    total = matrix[:, 0:1] * x[0]
    for i in range(1, x.shape[0]):
        total = total + matrix[:, i : i + 1] * x[i]
    return total


def _forward(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    if n % 2:
        return x if n == 1 else _multiply_out(torch.from_numpy(cosines(n)).to(x.device), x)
    top, mirrored = x[: n // 2], x[n // 2 :].flip(0)
    even = _forward(top + mirrored)
    odd = _forward((top - mirrored) * _rows(halving_factors(n), x))
    odd[:-1] = odd[:-1] + odd[1:]
    return torch.stack((even, odd), dim=1).reshape(x.shape)


def _inverse(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    if n % 2:
        return x if n == 1 else _multiply_out(torch.from_numpy(cosines(n).T).to(x.device), x)
    even, odd = x[0::2], x[1::2].clone()
    odd[1:] = odd[1:] + x[1::2][:-1]
    top = _inverse(even)
    mirrored = _inverse(odd) * _rows(halving_factors(n), x)
    return torch.cat((top + mirrored, (top - mirrored).flip(0)))


def _along_rows(x: torch.Tensor, inverse: bool) -> torch.Tensor:
    """Transform [chunks, n, m] over n."""
    count, n, m = x.shape
    rows = x.transpose(0, 1).reshape(n, count * m)
    scale = _rows(scales(n), x)
    out = _inverse(rows * scale) if inverse else _forward(rows) * scale
    return out.reshape(n, count, m).transpose(0, 1)


def dct_chunks(x: torch.Tensor) -> torch.Tensor:
    """Chunks [chunks, h, w] to coefficients [chunks, w, h]."""
    return _along_rows(_along_rows(x, inverse=False).transpose(1, 2), inverse=False)


def idct_chunks(c: torch.Tensor) -> torch.Tensor:
    """Coefficients [chunks, w, h] to chunks [chunks, h, w]."""
    return _along_rows(_along_rows(c, inverse=True).transpose(1, 2), inverse=True)


def idct_by_products(c: torch.Tensor) -> torch.Tensor:
    """As `idct_chunks`, by two products with matrices: several times faster on a CPU, and not the
    same bits everywhere."""
    _, w, h = c.shape
    columns, rows = (torch.from_numpy(cosines(n) * scales(n)[:, None]).to(c.device) for n in (w, h))
    return rows.T @ c.transpose(1, 2) @ columns
