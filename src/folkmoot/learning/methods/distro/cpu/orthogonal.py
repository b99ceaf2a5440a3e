"""orthogonal.py's treatment of one chunk, compiled, with the same bits.

Matrices are flat, row after row. All sums are exact, so terms that are zero may be left out:
orthogonal64.py does that for chunks of 64 × 64, here are the plain loops for every other shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from folkmoot.learning.methods.distro.cpu.chunk_dct import row, transpose
from folkmoot.learning.methods.distro.cpu.jit import compiled
from folkmoot.learning.methods.distro.cpu.orthogonal64 import (
    FIRST,
    GRID,
    LEAST,
    MOST,
    SECOND,
    orthogonalise64,
)


@compiled
def _product(weights: Any, rows: Any, h: int, m: int, n: int, to: Any) -> None:
    """to [h, n] = weights [h, m] times rows [m, n]."""
    to[:] = np.float32(0)
    for i in range(h):
        total = row(to, i, n)
        for j in range(m):
            weight, values = weights[i * m + j], row(rows, j, n)
            if weight != 0:
                for c in range(n):
                    total[c] += weight * values[c]


@compiled
def _max_abs(x: Any) -> Any:
    """The largest magnitude; not a number if one is not."""
    top = np.float32(0)
    for i in range(x.size):
        if not abs(x[i]) <= top:
            top = abs(x[i])
    return top


@compiled
def _round(x: Any, scale: Any) -> None:
    for i in range(x.size):
        x[i] = np.rint(x[i] * scale)


@compiled
def _max_row_sum(gram: Any, n: int) -> Any:
    """The largest sum of magnitudes in a row."""
    bound = 1.0
    for i in range(n):
        total = 0.0
        for value in row(gram, i, n):
            total += np.float64(abs(value))
        bound = max(bound, total)
    return bound


@compiled
def _orthogonalise_tall(x: Any, y: Any, h: int, n: int, scalars: Any, scratch: Any) -> None:
    """From x to y, of h rows and n columns, h ≥ n; both are used."""
    largest_integer, linear, higher = scalars
    gram, square = row(scratch, 0, n * n), row(scratch, 1, n * n)
    largest = _max_abs(x)
    if not LEAST < largest < MOST:
        y[:] = np.float32(0)
        return
    _round(x, largest_integer / largest)
    transpose(x, y, h, n)
    _product(y, x, n, h, n, gram)
    bound = _max_row_sum(gram, n)
    _round(gram, np.float32(GRID / bound))
    _product(gram, gram, n, n, n, square)
    for i in range(n * n):
        gram[i] = np.rint(gram[i] * FIRST + square[i] * SECOND)
    _round(x, np.float32(GRID / np.sqrt(bound)))
    _product(x, gram, h, n, n, y)
    for i in range(h * n):
        y[i] = x[i] * linear + y[i] * higher


@compiled
def orthogonalise_chunk(
    x: Any, y: Any, h: int, w: int, share: Any, scalars: Any, scratch: Any, masks: Any
) -> Any:
    """Orthogonalise x, of h rows and w columns, times `share`; returns x and y, the result first.

    `scalars` are the largest integer and the output factors of orthogonal.py, `scratch` has two
    squares of the shorter side, and `masks` three rows of 64 int64."""
    if h == 64 and w == 64:
        orthogonalise64(x, y, share, scalars, row(scratch, 0, 4096), row(scratch, 1, 4096), masks)
        return x, y
    for i in range(h * w):
        x[i] = x[i] * share
    if h >= w:
        _orthogonalise_tall(x, y, h, w, scalars, scratch)
    else:
        transpose(x, y, h, w)
        _orthogonalise_tall(y, x, w, h, scalars, scratch)
        transpose(x, y, w, h)
    return y, x
