"""orthogonal.py's treatment of a chunk of 64 × 64: the zeros, mostly all of it, are left out.

A row's bits say which of its entries are not zero; only those are multiplied, and the sum of a row
stays in registers until it is whole. Where many are not zero, plain blocks of integers are faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from folkmoot.learning.methods.distro.cpu.bitmask import count, single, tops
from folkmoot.learning.methods.distro.cpu.jit import compiled
from folkmoot.learning.methods.distro.cpu.row_sums import (
    combine,
    even_row,
    mix_8,
    mix_16,
    mix_row,
    pair_rows,
    round_row,
    square_8,
    square_16,
    weight_of_row,
)
from folkmoot.learning.methods.distro.cpu.simd import turn8
from folkmoot.learning.methods.distro.orthogonal import FIRST, GRID, LEAST, MOST, SECOND

_GRID, _FIRST, _SECOND = np.float64(GRID), np.float32(FIRST), np.float32(SECOND)
_LEAST, _MOST = np.float32(LEAST), np.float32(MOST)
_ONE = np.float32(1)
_FULL = 1024
"""More entries than these are not looked at one by one."""
ROWS, COLUMNS, MIXED = range(3)
"""What rows of `bits` are about: the chunk's rows and columns, and the rows of its square."""


@compiled
def _largest(x: Any) -> Any:
    """The largest magnitude, found among integers: what is not a number is the largest of all."""
    found = np.empty(8, np.int32)
    tops(x.view(np.int32), 0, 4096, found, 0)
    return single(found.max())


@compiled
def _turn_bits(x: Any, y: Any) -> None:
    """Transpose 64 × 64 bits: quarters of blocks change places, from blocks of 64 down to 2."""
    y[:] = x
    width, low = 32, np.int64(0xFFFFFFFF)
    while width:
        for first in range(0, 64, 2 * width):
            for i in range(first, first + width):
                moved = ((y[i] >> width) ^ y[i + width]) & low
                y[i] ^= moved << width
                y[i + width] ^= moved
        width //= 2
        low ^= low << width


@compiled
def _pair(x: Any, scale: Any, room: Any) -> Any:
    """x, times `scale` and rounded, as integers of 16 bits: two rows at a time."""
    pairs = room.view(np.int32)
    for i in range(0, 64, 2):
        pair_rows(x, i * 64, scale, pairs, i * 32)
    return pairs


@compiled
def _mirror(x: Any) -> None:
    """What lies left of the diagonal, in blocks of eight, from what lies right of it."""
    for i in range(8, 64, 8):
        for j in range(0, i, 8):
            turn8(x, j * 64 + i, x, i * 64 + j)


@compiled
def _gram(x: Any, bits: Any, to: Any) -> Any:
    """xᵀ x, and which of it is not zero.

    Returns the largest sum of magnitudes in a row."""
    _turn_bits(bits[ROWS], bits[COLUMNS])
    bits[MIXED] = 0
    bound = np.int32(1)
    for j in range(64):
        among = bits[COLUMNS, j]
        if among != 0:
            bound = max(bound, combine(x, j, among, x, bits[ROWS], to, j * 64, bits[MIXED, j:]))
        else:
            to[j * 64 : j * 64 + 64] = np.float32(0)
    return bound


@compiled
def _full_gram(x: Any, room: Any, bits: Any, to: Any) -> Any:
    pairs = _pair(x, _ONE, room)
    for j in range(0, 64, 16):
        for i in range(0, j + 8, 4):
            square_16(pairs, i, j, to)
        for i in range(j + 8, j + 16, 4):
            square_8(pairs, i, j + 8, to)
    _mirror(to)
    bits[MIXED] = -1
    bound = np.int32(1)
    for j in range(64):
        bound = max(bound, weight_of_row(to, j * 64))
    return bound


@compiled
def _mix(gram: Any, bits: Any, scale: Any, to: Any) -> None:
    """to = FIRST · A + SECOND · A · A, rounded, where A is gram times `scale`, rounded.

    gram equals its transpose, and may be changed."""
    for j in range(64):
        if bits[j] != 0:
            round_row(gram, j * 64, _ONE, scale)
    for j in range(64):
        if bits[j] != 0:
            mix_row(gram, j * 64, bits[j], gram, _FIRST, _SECOND, to)


@compiled
def _full_mix(gram: Any, scale: Any, room: Any, to: Any) -> None:
    pairs = _pair(gram, scale, room)
    for j in range(0, 64, 16):
        for i in range(0, j + 8, 4):
            mix_16(pairs, i, j, gram, scale, _FIRST, _SECOND, to)
        for i in range(j + 8, j + 16, 4):
            mix_8(pairs, i, j + 8, gram, scale, _FIRST, _SECOND, to)
    _mirror(to)


@compiled
def _entries(bits: Any) -> Any:
    total = 0
    for i in range(64):
        total += count(bits[i])
    return total


@compiled
def even64(x: Any, spare: Any, share: Any, scalars: Any, gram: Any, mixed: Any, bits: Any) -> None:
    """Even x, times `share`, in place."""
    steps, own, other = scalars
    largest = _largest(x) * share
    if not _LEAST < largest < _MOST:
        x[:] = np.float32(0)
        return
    for i in range(64):
        bits[ROWS, i] = round_row(x, i * 64, share, steps / largest)
    full = _entries(bits[ROWS]) > _FULL
    bound = np.float64(_full_gram(x, spare, bits, gram) if full else _gram(x, bits, gram))
    scale = np.float32(_GRID / bound)
    if _entries(bits[MIXED]) > _FULL:
        _full_mix(gram, scale, spare, mixed)
    else:
        _mix(gram, bits[MIXED], scale, mixed)
    scale = np.float32(_GRID / np.sqrt(bound))
    for i in range(64):
        even_row(x, i * 64, bits[ROWS, i], mixed, scale, own, other)
