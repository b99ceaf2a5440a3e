"""Make a chunk nearly orthogonal: large singular values come down, small ones up.

One round of Newton–Schulz's kind: with X = x / s and A = XᵀX, X ← aX + X (bA + cA²), where s is a
bound of the largest singular value. Of all polynomials as + bs³ + cs⁵ it is the one that stays
closest to 1 for s from 0.05 to 1; further rounds would bring x nearer to U Vᵀ and learnt no better
(docs/learning.md). It is done to coefficients, where a chunk is sparse: what is zero stays exactly
zero, products skip it, and the orthonormal inverse transform changes no singular value.

**Same bits on every machine.** A matrix product rounds in an order that its library chooses; so X,
A and B are kept on grids where nothing is left to round: all entries are integers and no sum of
products exceeds 2²⁴, up to which float32 holds them exactly. Entries of x become at most
`largest_integer`, which bounds the sums of A. Rows of A / s² sum to at most 1, and so do the
squares of a row or column of X / s: in units of 1/1024, sums of A A stay near 2²⁰ and, as B's
singular values are below 6.4, those of X B below 6.4 · 2²⁰, both with room for what rounding to the
grid adds. What lies between the products is elementwise and rounds once each.
"""

from __future__ import annotations

import math

import torch

from folkmoot.learning.methods.distro.rounding import float32

GRID = 1024.0
LEAST, MOST = 2.0**-100, 2.0**100
"""A chunk whose largest value is beyond these counts as empty: its scale would not be a number."""
A, B, C = 6.7524, -18.3510, 13.2633


FIRST, SECOND = float32(B), float32(C / GRID)
"""What A and A A in units of the grid are multiplied by."""


def largest_integer(n: int) -> float:
    """The largest integer an entry becomes, so that n squares of it sum to at most 2²⁴."""
    return float(2 ** ((24 - math.ceil(math.log2(n))) // 2))


def output_factors(h: int, w: int) -> tuple[float, float]:
    """What X and X B in units of the grid are multiplied by, so that the mean square is near one.

    A single row or column has but one direction, which needs its length made one and no more."""
    size = math.sqrt(max(h, w)) / GRID
    return (float32(size), 0.0) if min(h, w) == 1 else (float32(A * size), float32(size / GRID))


def orthogonalise(x: torch.Tensor) -> torch.Tensor:
    """x [chunks, h, w] with its singular values made nearly equal."""
    tall = x.transpose(1, 2) if x.shape[1] < x.shape[2] else x
    own, mixed = output_factors(*x.shape[1:])
    integers = _to_integers(tall)
    gram = torch.bmm(integers.transpose(1, 2), integers)
    bound = gram.double().abs().sum(dim=2).amax(dim=1).clamp(min=1.0).view(-1, 1, 1)
    gram = (gram * (GRID / bound).float()).round_()
    b = ((gram * FIRST) + (torch.bmm(gram, gram) * SECOND)).round_()
    unit = (integers * (GRID / bound.sqrt()).float()).round_()
    made = (unit * own) + (torch.bmm(unit, b) * mixed)
    return made.transpose(1, 2) if tall is not x else made


def _to_integers(x: torch.Tensor) -> torch.Tensor:
    """x as integers, the largest of each chunk `largest_integer`."""
    largest = x.abs().amax(dim=(1, 2), keepdim=True)
    usable = (largest > LEAST) & (largest < MOST)
    scale = largest_integer(x.shape[1]) / torch.where(usable, largest, 1.0)
    return torch.where(usable, x, 0.0).mul_(scale).round_()
