"""orthogonal.py's treatment of a chunk of 64 × 64: the zeros, mostly all of it, are left out.

A row's bits say which of its entries are not zero; only those are multiplied, and the sum of a row
stays in registers until it is whole. Where many are not zero, plain blocks of integers are faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from folkmoot.learning.methods.distro import orthogonal as meaning
from folkmoot.learning.methods.distro.cpu.bitmask import block_maxima, float_from_bits, popcount
from folkmoot.learning.methods.distro.cpu.jit import compiled
from folkmoot.learning.methods.distro.cpu.row_sums import (
    abs_row_sum,
    gram_8,
    gram_16,
    orthogonalise_row,
    pack_row_pairs,
    polynomial_8,
    polynomial_16,
    polynomial_row,
    round_row,
    sum_rows,
)
from folkmoot.learning.methods.distro.cpu.simd import transpose8

GRID, FIRST, SECOND = (
    np.float64(meaning.GRID),
    np.float32(meaning.FIRST),
    np.float32(meaning.SECOND),
)
LEAST, MOST = np.float32(meaning.LEAST), np.float32(meaning.MOST)
_ONE = np.float32(1)
_DENSE = 1024
"""More entries than these are not looked at one by one."""
ROWS, COLUMNS, GRAM = range(3)
"""What rows of `masks` are about: the chunk's rows and columns, and the rows of its Gram matrix."""


@compiled
def _max_abs(x: Any) -> Any:
    """The largest magnitude, found among integers: what is not a number is the largest of all."""
    found = np.empty(8, np.int32)
    block_maxima(x.view(np.int32), 0, 4096, found, 0)
    return float_from_bits(found.max())


@compiled
def _transpose_mask(x: Any, y: Any) -> None:
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
def _pack_pairs(x: Any, scale: Any, scratch: Any) -> Any:
    """x, times `scale` and rounded, as integers of 16 bits: two rows at a time."""
    pairs = scratch.view(np.int32)
    for i in range(0, 64, 2):
        pack_row_pairs(x, i * 64, scale, pairs, i * 32)
    return pairs


@compiled
def _mirror(x: Any) -> None:
    """What lies left of the diagonal, in blocks of eight, from what lies right of it."""
    for i in range(8, 64, 8):
        for j in range(0, i, 8):
            transpose8(x, j * 64 + i, x, i * 64 + j)


@compiled
def _gram(x: Any, masks: Any, to: Any) -> Any:
    """xᵀ x, and which of it is not zero.

    Returns the largest sum of magnitudes in a row."""
    _transpose_mask(masks[ROWS], masks[COLUMNS])
    masks[GRAM] = 0
    bound = np.int32(1)
    for j in range(64):
        among = masks[COLUMNS, j]
        if among != 0:
            bound = max(bound, sum_rows(x, j, among, x, masks[ROWS], to, j * 64, masks[GRAM, j:]))
        else:
            to[j * 64 : j * 64 + 64] = np.float32(0)
    return bound


@compiled
def _dense_gram(x: Any, scratch: Any, masks: Any, to: Any) -> Any:
    pairs = _pack_pairs(x, _ONE, scratch)
    for j in range(0, 64, 16):
        for i in range(0, j + 8, 4):
            gram_16(pairs, i, j, to)
        for i in range(j + 8, j + 16, 4):
            gram_8(pairs, i, j + 8, to)
    _mirror(to)
    masks[GRAM] = -1
    bound = np.int32(1)
    for j in range(64):
        bound = max(bound, abs_row_sum(to, j * 64))
    return bound


@compiled
def _polynomial(gram: Any, masks: Any, scale: Any, to: Any) -> None:
    """to = FIRST · A + SECOND · A · A, rounded, where A is gram times `scale`, rounded.

    gram equals its transpose, and may be changed."""
    for j in range(64):
        if masks[j] != 0:
            round_row(gram, j * 64, _ONE, scale)
    for j in range(64):
        if masks[j] != 0:
            polynomial_row(gram, j * 64, masks[j], gram, FIRST, SECOND, to)


@compiled
def _dense_polynomial(gram: Any, scale: Any, scratch: Any, to: Any) -> None:
    pairs = _pack_pairs(gram, scale, scratch)
    for j in range(0, 64, 16):
        for i in range(0, j + 8, 4):
            polynomial_16(pairs, i, j, gram, scale, FIRST, SECOND, to)
        for i in range(j + 8, j + 16, 4):
            polynomial_8(pairs, i, j + 8, gram, scale, FIRST, SECOND, to)
    _mirror(to)


@compiled
def _entries(masks: Any) -> Any:
    total = 0
    for i in range(64):
        total += popcount(masks[i])
    return total


@compiled
def orthogonalise64(
    x: Any, scratch: Any, share: Any, scalars: Any, gram: Any, polynomial: Any, masks: Any
) -> None:
    """Orthogonalise x, times `share`, in place."""
    largest_integer, linear, higher = scalars
    largest = _max_abs(x) * share
    if not LEAST < largest < MOST:
        x[:] = np.float32(0)
        return
    for i in range(64):
        masks[ROWS, i] = round_row(x, i * 64, share, largest_integer / largest)
    dense = _entries(masks[ROWS]) > _DENSE
    bound = np.float64(_dense_gram(x, scratch, masks, gram) if dense else _gram(x, masks, gram))
    scale = np.float32(GRID / bound)
    if _entries(masks[GRAM]) > _DENSE:
        _dense_polynomial(gram, scale, scratch, polynomial)
    else:
        _polynomial(gram, masks[GRAM], scale, polynomial)
    scale = np.float32(GRID / np.sqrt(bound))
    for i in range(64):
        orthogonalise_row(x, i * 64, masks[ROWS, i], polynomial, scale, linear, higher)
