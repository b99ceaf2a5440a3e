"""orthogonal.py's treatment of one chunk, compiled, with the same bits.

Matrices are flat, row after row. Products take eight weights at a time and skip them where all
are zero, so a sparse chunk costs a fraction of a full one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from folkmoot.learning.distro.compiled import compiled
from folkmoot.learning.distro.lanes import add_16, add_32, add_48, add_64, turn8
from folkmoot.learning.distro.orthogonal import FIRST, GRID, LEAST, MOST, SECOND
from folkmoot.learning.distro.transform import row, transpose

_GRID, _FIRST, _SECOND = np.float64(GRID), np.float32(FIRST), np.float32(SECOND)
_LEAST, _MOST = np.float32(LEAST), np.float32(MOST)
_MAGNITUDE = np.int32(0x7FFFFFFF)


@compiled
def _product64(weights: Any, rows: Any, first: int, last: int, skip: int, to: Any) -> None:
    """Rows first … last of the product from column `skip` on; weights go in twos by fours."""
    pairs = weights.view(np.int64)
    for i in range(first, last, 2):
        for j in range(0, 64, 4):
            at = i * 64 + j
            a, b = at // 2, at // 2 + 32
            if pairs[a] | pairs[a + 1] | pairs[b] | pairs[b + 1]:
                if skip == 0:
                    add_64(weights, at, rows, j * 64, to, i * 64)
                elif skip == 16:
                    add_48(weights, at, rows, j * 64 + 16, to, i * 64 + 16)
                elif skip == 32:
                    add_32(weights, at, rows, j * 64 + 32, to, i * 64 + 32)
                else:
                    add_16(weights, at, rows, j * 64 + 48, to, i * 64 + 48)


@compiled
def _symmetric64(weights: Any, rows: Any, to: Any) -> None:
    """A product that equals its transpose: what lies left of the diagonal is copied."""
    for skip in range(0, 64, 16):
        _product64(weights, rows, skip, skip + 16, skip, to)
        for i in range(skip, skip + 16, 8):
            for j in range(0, skip, 8):
                turn8(to, j * 64 + i, to, i * 64 + j)


@compiled
def _product(weights: Any, rows: Any, h: int, m: int, n: int, symmetric: bool, to: Any) -> None:
    """to [h, n] = weights [h, m] times rows [m, n]."""
    to[:] = np.float32(0)
    if h == 64 and m == 64 and n == 64:
        if symmetric:
            _symmetric64(weights, rows, to)
        else:
            _product64(weights, rows, 0, 64, 0, to)
        return
    for i in range(h):
        total = row(to, i, n)
        for j in range(m):
            weight, values = weights[i * m + j], row(rows, j, n)
            if weight != 0:
                for c in range(n):
                    total[c] += weight * values[c]


@compiled
def _turn(x: Any, y: Any, h: int, w: int) -> None:
    if h == 64 and w == 64:
        for i in range(0, 64, 8):
            for j in range(0, 64, 8):
                turn8(x, i * 64 + j, y, j * 64 + i)
    else:
        transpose(x, y, h, w)


@compiled
def _largest(x: Any) -> Any:
    """The largest magnitude; found among integers, of which the compiler makes vectors."""
    bits, top = x.view(np.int32), np.int32(0)
    for i in range(bits.size):
        top = max(top, bits[i] & _MAGNITUDE)
    for i in range(bits.size):
        if bits[i] & _MAGNITUDE == top:
            return abs(x[i])
    return np.float32(0)


@compiled
def _round(x: Any, scale: Any) -> None:
    for i in range(x.size):
        x[i] = np.rint(x[i] * scale)


@compiled
def _bound(gram: Any, n: int, sums: Any) -> Any:
    """The largest sum of magnitudes in a row; those of columns are the same."""
    sums[:] = 0.0
    for i in range(n):
        values = row(gram, i, n)
        for j in range(n):
            sums[j] += np.float64(abs(values[j]))
    return max(sums.max(), 1.0)


@compiled
def _even_tall(x: Any, y: Any, h: int, n: int, scalars: Any, room: Any, sums: Any) -> None:
    """From x to y, of h rows and n columns, h ≥ n; both are used."""
    steps, own, mixed = scalars
    gram, square = row(room, 0, n * n), row(room, 1, n * n)
    largest = _largest(x)
    if not _LEAST < largest < _MOST:
        y[:] = np.float32(0)
        return
    _round(x, steps / largest)
    _turn(x, y, h, n)
    _product(y, x, n, h, n, True, gram)
    bound = _bound(gram, n, sums)
    _round(gram, np.float32(_GRID / bound))
    _product(gram, gram, n, n, n, True, square)
    for i in range(n * n):
        gram[i] = np.rint(gram[i] * _FIRST + square[i] * _SECOND)
    _round(x, np.float32(_GRID / np.sqrt(bound)))
    _product(x, gram, h, n, n, False, y)
    for i in range(h * n):
        y[i] = x[i] * own + y[i] * mixed


@compiled
def even(x: Any, y: Any, h: int, w: int, scalars: Any, room: Any, sums: Any) -> Any:
    """Even x of h rows and w columns; returns (the result, the other) of the two buffers.

    `scalars` are orthogonal.py's steps and factors, `room` has two squares of the shorter side,
    and `sums` that side in float64."""
    if h >= w:
        _even_tall(x, y, h, w, scalars, room, sums)
        return y, x
    _turn(x, y, h, w)
    _even_tall(y, x, w, h, scalars, room, sums)
    _turn(x, y, w, h)
    return y, x
