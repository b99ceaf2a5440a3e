"""Chunk transforms for compiled kernels: vector code for 64 × 64, loops for every other shape.

The loops are Lee's recursion of dct.py, level by level between two buffers, with the same
operations in the same order. Buffers are flat, rows one after the other; functions that work in two
buffers return (the one with the result, the other). Inner loops run over slices from 0 on, because
an index that might be negative keeps the compiler from using vectors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from folkmoot.learning.methods.distro.cpu.dct64 import (
    dct64,
    dct64_accumulate,
    idct64,
    idct64_in_place,
)
from folkmoot.learning.methods.distro.cpu.jit import compiled
from folkmoot.learning.methods.distro.cpu.simd import (
    copy_row,
    prefetch,
    swap_transpose8,
    transpose8,
)
from folkmoot.learning.methods.distro.dct import Floats, cosines, halving_factors, scales

Tables = tuple[int, Floats, Floats, Floats]


@lru_cache(maxsize=256)
def tables(n: int) -> Tables:
    """For length n: its odd part, the halving factors of all levels, odd cosines, scales."""
    odd, factors = n, [np.zeros(0, np.float32)]
    while odd % 2 == 0 and odd > 0:
        factors.append(halving_factors(odd))
        odd //= 2
    return odd, np.concatenate(factors), cosines(odd), scales(n)


@compiled
def row(x: Any, number: int, width: int) -> Any:
    return x[number * width : (number + 1) * width]


@compiled
def copy(x: Any, y: Any) -> None:
    for i in range(x.size):
        y[i] = x[i]


@compiled
def add(x: Any, y: Any, to: Any) -> None:
    for i in range(x.size):
        to[i] = x[i] + y[i]


@compiled
def _multiply_out(x: Any, out: Any, n: int, m: int, odd: int, matrix: Any, inverse: bool) -> None:
    for block in range(0, n, odd):
        for f in range(odd):
            to = row(out, block + f, m)
            for i in range(odd):
                factor = matrix[i, f] if inverse else matrix[f, i]
                at = row(x, block + i, m)
                for c in range(m):
                    term = factor * at[c]
                    to[c] = term if i == 0 else to[c] + term


@compiled
def _halve(x: Any, y: Any, n: int, m: int, length: int, factors: Any) -> None:
    """x to y: sums and scaled differences of mirrored rows, in every block of `length` rows."""
    half = length // 2
    for block in range(0, n, length):
        for i in range(half):
            a, z = row(x, block + i, m), row(x, block + length - 1 - i, m)
            sums, differences = row(y, block + i, m), row(y, block + half + i, m)
            factor = factors[i]
            for c in range(m):
                sums[c] = a[c] + z[c]
                differences[c] = (a[c] - z[c]) * factor


@compiled
def _interleave(x: Any, y: Any, n: int, m: int, length: int) -> None:
    """x to y: even frequencies from each block's first half, odd ones from sums in its second."""
    half = length // 2
    for block in range(0, n, length):
        for i in range(half):
            copy(row(x, block + i, m), row(y, block + 2 * i, m))
            here, to = row(x, block + half + i, m), row(y, block + 2 * i + 1, m)
            if i == half - 1:
                copy(here, to)
            else:
                add(here, row(x, block + half + i + 1, m), to)


@compiled
def _deinterleave(x: Any, y: Any, n: int, m: int, length: int) -> None:
    """The transpose of `_interleave`."""
    half = length // 2
    for block in range(0, n, length):
        for i in range(half):
            copy(row(x, block + 2 * i, m), row(y, block + i, m))
            here, to = row(x, block + 2 * i + 1, m), row(y, block + half + i, m)
            if i == 0:
                copy(here, to)
            else:
                add(here, row(x, block + 2 * i - 1, m), to)


@compiled
def _unhalve(x: Any, y: Any, n: int, m: int, length: int, factors: Any) -> None:
    """The transpose of `_halve`."""
    half = length // 2
    for block in range(0, n, length):
        for i in range(half):
            top, low = row(x, block + i, m), row(x, block + half + i, m)
            a, z = row(y, block + i, m), row(y, block + length - 1 - i, m)
            factor = factors[i]
            for c in range(m):
                term = low[c] * factor
                a[c] = top[c] + term
                z[c] = top[c] - term


@compiled
def _scale(x: Any, n: int, m: int, scale: Any) -> None:
    for f in range(n):
        values, factor = row(x, f, m), scale[f]
        for c in range(m):
            values[c] = values[c] * factor


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
        _interleave(x, y, n, m, length)
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
        _deinterleave(x, y, n, m, length)
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
def transpose(x: Any, y: Any, n: int, m: int) -> None:
    for i in range(n):
        for j in range(m):
            y[j * n + i] = x[i * m + j]


@compiled
def _transpose64(x: Any) -> None:
    for i in range(0, 64, 8):
        transpose8(x, i * 65, x, i * 65)
        for j in range(0, i, 8):
            swap_transpose8(x, i * 64 + j, j * 64 + i)


@compiled
def _prefetch_rows(first: int, last: int, w: int, at: int, stride: int, flat: Any) -> None:
    for i in range(first, last):
        for line in range(0, w, 16):
            prefetch(flat, at + i * stride + line)


@compiled
def forward_chunk(
    h: int, w: int, th: Any, tw: Any, at: int, stride: int, flat: Any, ahead: int,
    ahead_stride: int, momentum: Any, at_held: int, ahead_held: int, decay: Any, scale: Any,
    a: Any, b: Any,
) -> None:  # fmt: skip
    """The chunk [w, h] at momentum[at_held] ← itself · decay + scale · the DCT of flat[at].

    Rows of a chunk are short and too far apart to be foreseen; so those of the chunk at `ahead` and
    `ahead_held`, which comes next, are prefetched meanwhile."""
    if h == 64 and w == 64:
        # Copied row by row first: rows a power of two apart would push each other out of the cache.
        for i in range(64):
            copy_row(flat, at + i * stride, a, i * 64)
        for c in range(0, 64, 8):
            dct64(a, c, 64, a, c, momentum, ahead_held + c * 64, 64)
        _transpose64(a)
        for c in range(0, 64, 8):
            ahead_row = ahead + c * ahead_stride
            dct64_accumulate(
                a, c, momentum, at_held + c, decay, scale, flat, ahead_row, ahead_stride
            )
        return
    for i in range(h):
        copy(flat[at + i * stride : at + i * stride + w], row(a, i, w))
    _prefetch_rows(0, h, w, ahead, ahead_stride, flat)
    x, y = forward_rows(a, b, h, w, th)
    transpose(x, y, h, w)
    x, y = forward_rows(y, x, w, h, tw)
    held = momentum[at_held : at_held + h * w]
    for i in range(h * w):
        held[i] = held[i] * decay + x[i] * scale


@compiled
def inverse_chunk(
    h: int, w: int, th: Any, tw: Any, flat: Any, ahead: int, ahead_stride: int, a: Any, b: Any
) -> Any:
    """The values [h, w] of the coefficients [w, h] in a; prefetches the chunk at `ahead`."""
    if h == 64 and w == 64:
        for c in range(0, 64, 8):
            idct64(a, c, 64, a, c, flat, ahead + c * ahead_stride, ahead_stride)
        _transpose64(a)
        for c in range(0, 64, 8):
            idct64_in_place(a, c)
        return a, b
    _prefetch_rows(0, h, w, ahead, ahead_stride, flat)
    x, y = inverse_rows(a, b, w, h, tw)
    transpose(x, y, w, h)
    return inverse_rows(y, x, h, w, th)
