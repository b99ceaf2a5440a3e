"""orthogonal.py's treatment of a chunk of 64 × 64: the zeros, mostly all of it, are left out.

A row's bits say which of its entries are not zero; only those are multiplied, and the sum of a row
stays in registers until it is whole. Where many are not zero, plain blocks of integers are faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from folkmoot.learning.distro.bits import count, single, tops
from folkmoot.learning.distro.compiled import compiled
from folkmoot.learning.distro.orthogonal import FIRST, GRID, LEAST, MOST, SECOND
from folkmoot.learning.distro.sums import (
    combine,
    even_row,
    mix_row,
    pair_rows,
    round_row,
    square_block,
)
from folkmoot.learning.distro.vectors import turn8

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
def _square(x: Any, room: Any, to: Any) -> None:
    """xᵀ x in integers of 16 bits; what lies left of the diagonal is copied."""
    pairs = room.view(np.int32)
    for i in range(0, 64, 2):
        pair_rows(x, i * 64, pairs, i * 32)
    for j in range(0, 64, 16):
        for i in range(0, j + 16, 4):
            square_block(pairs, i, j, to)
    for i in range(16, 64, 8):
        for j in range(0, i // 16 * 16, 8):
            turn8(to, j * 64 + i, to, i * 64 + j)


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
    _square(x, room, to)
    bound = np.int32(1)
    for j in range(64):
        bits[MIXED, j] = -1
        total = np.int32(0)
        for value in to[j * 64 : j * 64 + 64]:
            total += np.int32(abs(value))
        bound = max(bound, total)
    return bound


@compiled
def _mix(gram: Any, bits: Any, room: Any, to: Any) -> None:
    """to = FIRST · gram + SECOND · gram · gram, rounded; gram equals its transpose."""
    total = 0
    for j in range(64):
        total += count(bits[j])
    if total > _FULL:
        _square(gram, room, to)
        for i in range(4096):
            to[i] = np.rint(gram[i] * _FIRST + to[i] * _SECOND)
        return
    for j in range(64):
        if bits[j] != 0:
            mix_row(gram, j * 64, bits[j], gram, _FIRST, _SECOND, to)


@compiled
def even64(x: Any, spare: Any, share: Any, scalars: Any, gram: Any, mixed: Any, bits: Any) -> None:
    """Even x, times `share`, in place."""
    steps, own, other = scalars
    largest = _largest(x) * share
    if not _LEAST < largest < _MOST:
        x[:] = np.float32(0)
        return
    entries = 0
    for i in range(64):
        bits[ROWS, i] = round_row(x, i * 64, share, steps / largest)
        entries += count(bits[ROWS, i])
    bound = np.float64(
        _full_gram(x, spare, bits, gram) if entries > _FULL else _gram(x, bits, gram)
    )
    for j in range(64):
        if bits[MIXED, j] != 0:
            round_row(gram, j * 64, _ONE, np.float32(_GRID / bound))
    _mix(gram, bits[MIXED], spare, mixed)
    scale = np.float32(_GRID / np.sqrt(bound))
    for i in range(64):
        even_row(x, i * 64, bits[ROWS, i], mixed, scale, own, other)
