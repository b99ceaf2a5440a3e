"""Chunk transforms for compiled kernels: vector code for 64 × 64, loops for every other shape.

The loops are Lee's recursion of dct.py, level by level between two buffers, with the same
operations in the same order. Buffers are flat, rows one after the other; functions that work in two
buffers return (the one with the result, the other).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from folkmoot.learning.distro.compiled import compiled
from folkmoot.learning.distro.dct import Floats, cosines, halves, scales
from folkmoot.learning.distro.lanes import dct64, dct64_transposed, idct64, idct64_transposed

Tables = tuple[int, Floats, Floats, Floats]


@lru_cache(maxsize=256)
def tables(n: int) -> Tables:
    """For length n: its odd part, the halving factors of all levels, odd cosines, scales."""
    odd, factors = n, [np.zeros(0, np.float32)]
    while odd % 2 == 0 and odd > 0:
        factors.append(halves(odd))
        odd //= 2
    return odd, np.concatenate(factors), cosines(odd), scales(n)


@compiled
def _multiply_out(x: Any, out: Any, n: int, m: int, odd: int, matrix: Any, inverse: bool) -> None:
    for block in range(0, n, odd):
        for f in range(odd):
            to = (block + f) * m
            for i in range(odd):
                factor = matrix[i, f] if inverse else matrix[f, i]
                at = (block + i) * m
                for c in range(m):
                    term = factor * x[at + c]
                    out[to + c] = term if i == 0 else out[to + c] + term


@compiled
def _halve(x: Any, y: Any, n: int, m: int, length: int, factors: Any) -> None:
    """x to y: sums and scaled differences of mirrored rows, in every block of `length` rows."""
    half = length // 2
    for block in range(0, n, length):
        for i in range(half):
            a, z = (block + i) * m, (block + length - 1 - i) * m
            d = (block + half + i) * m
            factor = factors[i]
            for c in range(m):
                y[a + c] = x[a + c] + x[z + c]
                y[d + c] = (x[a + c] - x[z + c]) * factor


@compiled
def _weave(x: Any, y: Any, n: int, m: int, length: int) -> None:
    """x to y: even frequencies from each block's first half, odd ones from sums in its second."""
    half = length // 2
    for block in range(0, n, length):
        for i in range(half):
            even, odd, to = (block + i) * m, (block + half + i) * m, (block + 2 * i) * m
            for c in range(m):
                y[to + c] = x[even + c]
                y[to + m + c] = x[odd + c]
            if i < half - 1:
                for c in range(m):
                    y[to + m + c] = x[odd + c] + x[odd + m + c]


@compiled
def _unweave(x: Any, y: Any, n: int, m: int, length: int) -> None:
    """The transpose of `_weave`."""
    half = length // 2
    for block in range(0, n, length):
        for i in range(half):
            even, odd, at = (block + i) * m, (block + half + i) * m, (block + 2 * i) * m
            for c in range(m):
                y[even + c] = x[at + c]
                y[odd + c] = x[at + m + c]
            if i > 0:
                for c in range(m):
                    y[odd + c] = x[at + m + c] + x[at - m + c]


@compiled
def _unhalve(x: Any, y: Any, n: int, m: int, length: int, factors: Any) -> None:
    """The transpose of `_halve`."""
    half = length // 2
    for block in range(0, n, length):
        for i in range(half):
            a, z = (block + i) * m, (block + length - 1 - i) * m
            d = (block + half + i) * m
            factor = factors[i]
            for c in range(m):
                term = x[d + c] * factor
                y[a + c] = x[a + c] + term
                y[z + c] = x[a + c] - term


@compiled
def _scale(x: Any, n: int, m: int, scale: Any) -> None:
    for f in range(n):
        for c in range(f * m, (f + 1) * m):
            x[c] = x[c] * scale[f]


@compiled
def forward_rows(x: Any, y: Any, n: int, m: int, t: Any) -> Any:
    """Transform n rows of m columns."""
    odd, factors, matrix, scale = t
    length, used = n, 0
    while length > odd:
        _halve(x, y, n, m, length, factors[used:])
        x, y, used, length = y, x, used + length // 2, length // 2
    if odd > 1:
        _multiply_out(x, y, n, m, odd, matrix, False)
        x, y = y, x
    while length < n:
        length = 2 * length
        _weave(x, y, n, m, length)
        x, y = y, x
    _scale(x, n, m, scale)
    return x, y


@compiled
def inverse_rows(x: Any, y: Any, n: int, m: int, t: Any) -> Any:
    """The reverse of `forward_rows`."""
    odd, factors, matrix, scale = t
    _scale(x, n, m, scale)
    length, used = n, 0
    while length > odd:
        _unweave(x, y, n, m, length)
        x, y, used, length = y, x, used + length // 2, length // 2
    if odd > 1:
        _multiply_out(x, y, n, m, odd, matrix, True)
        x, y = y, x
    while length < n:
        used, length = used - length, 2 * length
        _unhalve(x, y, n, m, length, factors[used:])
        x, y = y, x
    return x, y


@compiled
def _transpose(x: Any, y: Any, n: int, m: int) -> None:
    for i in range(n):
        for j in range(m):
            y[j * n + i] = x[i * m + j]


@compiled
def _copy(x: Any, at: int, y: Any, to: int, count: int) -> None:
    for i in range(count):
        y[to + i] = x[at + i]


@compiled
def forward(
    h: int, w: int, th: Any, tw: Any, offset: Any, stride: Any, flat: Any, out: Any
) -> None:
    """The coefficients [w, h] of every chunk that starts at flat[offset], one after the other."""
    size = h * w
    a, b = np.empty(size, np.float32), np.empty(size, np.float32)
    for chunk in range(offset.size):
        at, to = offset[chunk], chunk * size
        if h == 64 and w == 64:
            for c in range(0, 64, 8):
                dct64_transposed(flat, at + c, stride[chunk], a, c * 64)
            for c in range(0, 64, 8):
                dct64(a, c, 64, out, to + c)
        else:
            for i in range(h):
                _copy(flat, at + i * stride[chunk], a, i * w, w)
            x, y = forward_rows(a, b, h, w, th)
            _transpose(x, y, h, w)
            x, y = forward_rows(y, x, w, h, tw)
            _copy(x, 0, out, to, size)


@compiled
def inverse(h: int, w: int, th: Any, tw: Any, chunks: Any) -> None:
    """Coefficients [w, h] of consecutive chunks to values [h, w], in place."""
    size = h * w
    a, b = np.empty(size, np.float32), np.empty(size, np.float32)
    for at in range(0, chunks.size, size):
        if h == 64 and w == 64:
            for c in range(0, 64, 8):
                idct64_transposed(chunks, at + c, 64, a, c * 64)
            for c in range(0, 64, 8):
                idct64(a, c, 64, chunks, at + c)
        else:
            _copy(chunks, at, a, 0, size)
            x, y = inverse_rows(a, b, w, h, tw)
            _transpose(x, y, w, h)
            x, y = inverse_rows(y, x, h, w, th)
            _copy(x, 0, chunks, at, size)
