"""Give every direction of a chunk the same weight: x = U S Vᵀ becomes U Vᵀ, nearly.

Newton–Schulz: with X = x / |x|, repeat X ← aX + (bA + cA²) X where A = X Xᵀ. Five rounds bring all
singular values that matter into 0.7 … 1.2 (coefficients of K. Jordan et al., Muon). The inverse
transform that follows is orthonormal and keeps them so. Before it, a chunk is sparse: what is zero
stays exactly zero, where the noise of rounding would be blown up to the size of what was sent.

**Same bits on every machine.** A matrix product rounds in an order that its library chooses; so X,
A and B are kept on a grid of 1/2048, where nothing is left to round: in units of the grid all
entries are integers, and no sum of products exceeds 3.4 · 2²² (singular values stay below 1.2,
those of B below 2.81, and Cauchy–Schwarz bounds the sums, also of any part of the terms). float32
holds integers up to 2²⁴. What lies between the products is elementwise and rounds once each.
"""

from __future__ import annotations

import math

import torch

_GRID = 2048.0
_A, _B, _C = 3.4445, -4.7750, 2.0315
ROUNDS = 5


def orthogonal(x: torch.Tensor) -> torch.Tensor:
    """x [chunks, h, w] with its singular values made equal, and a mean square near one."""
    filled, size, tall = x != 0, math.sqrt(max(x.shape[1:])), x.shape[1] > x.shape[2]
    rows, columns = _used(filled.any(dim=2)), _used(filled.any(dim=1))
    if rows.shape[1] * columns.shape[1] > 0.7 * x[0].numel():
        return _newton_schulz(x, tall).mul_(size)
    # Few coefficients leave most rows and columns empty; what is exact does not miss them.
    down, across = rows.unsqueeze(2), columns.unsqueeze(1)
    part = x.gather(1, down.expand(-1, -1, x.shape[2]))
    part = part.gather(2, across.expand(-1, part.shape[1], -1))
    made = _newton_schulz(part, tall).mul_(size)
    wide = x.new_zeros(len(x), rows.shape[1], x.shape[2])
    wide.scatter_(2, across.expand(-1, rows.shape[1], -1), made)
    return torch.zeros_like(x).scatter_(1, down.expand(-1, -1, x.shape[2]), wide)


def _used(filled: torch.Tensor) -> torch.Tensor:
    """Per chunk, the places that are filled, and empty ones up to the largest number of those."""
    most = max(1, int(filled.sum(dim=1).max()))
    return filled.byte().argsort(dim=1, descending=True, stable=True)[:, :most]


def _newton_schulz(x: torch.Tensor, tall: bool) -> torch.Tensor:
    """`tall` is of the whole chunk: the side that is multiplied out must not depend on the part."""
    X = _unit(x.transpose(1, 2) if tall else x)
    for _ in range(ROUNDS):
        A = _round(torch.bmm(X, X.transpose(1, 2)))
        B = _round((A * _B) + (torch.bmm(A, A) * _C))
        X = _round((X * _A) + torch.bmm(B, X))
    return X.transpose(1, 2) if tall else X


def _round(x: torch.Tensor) -> torch.Tensor:
    return (x * _GRID).round_().div_(_GRID)


def _unit(x: torch.Tensor) -> torch.Tensor:
    """x / |x| on the grid, zero where x is. The norm, too, is a sum that float64 holds exactly."""
    largest = x.abs().amax(dim=(1, 2), keepdim=True)
    scaled = (x / torch.where(largest > 0, largest, 1.0)).double()
    whole = (scaled * 2.0**20).round_()
    length = (whole * whole).sum(dim=(1, 2), keepdim=True).sqrt_()
    return _round((whole / length.clamp(min=1.0)).float())
