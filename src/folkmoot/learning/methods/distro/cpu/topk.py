"""The k largest magnitudes of a chunk, compiled.

Magnitudes are compared as integers: the bits of a finite float without its sign are ordered like
its magnitude. The k-th largest of the blocks' maxima, rounded down, is a bar that at least k values
reach, and few others do, so only blocks whose maximum reaches it are looked at again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from folkmoot.learning.methods.distro.cpu.bitmask import block_maxima, lowest_bit, mask_at_least
from folkmoot.learning.methods.distro.cpu.jit import compiled

_FEW = 12
"""So many candidates too many are struck out one by one."""
_MAGNITUDE = _STRUCK = np.int32(0x7FFFFFFF)


@compiled
def _block_length(n: int, k: int) -> int:
    length = 64
    while length > 8 and n < 4 * k * length:
        length //= 2
    return length


@compiled
def _kth_largest(values: Any, count: int, k: int, last: int) -> Any:
    """Found bit by bit down to `last`: the largest such bar that k values reach.

    The search begins at the first bit in which any two of them differ."""
    differ = np.int32(0)
    for i in range(count):
        differ |= np.int32(values[i] ^ values[0])
    top = last
    while differ >> top > 1:
        top += 1
    threshold = np.int32(values[0] >> (top + 1) << (top + 1))
    for bit in range(top, last - 1, -1):
        trial = np.int32(threshold | np.int32(1 << bit))
        reached = np.int32(0)
        for i in range(count):
            reached += np.int32(values[i] >= trial)
        if reached >= k:
            threshold = trial
    return threshold


@compiled
def _threshold(maxima: Any, blocks: int, k: int) -> Any:
    return _kth_largest(maxima, blocks, k, 16) if blocks >= k else np.int32(0)


@compiled
def _candidates(bits: Any, k: int, length: int, scratch: Any) -> int:
    """Fill room[1] and room[2] with magnitudes and places of all that reach the bar, in order."""
    maxima, values, places = scratch[0], scratch[1], scratch[2]
    blocks = found = 0
    for first in range(0, bits.size, length):
        top = np.int32(0)
        for value in bits[first : first + length]:
            top = max(top, np.int32(value & _MAGNITUDE))
        maxima[blocks] = top
        blocks += 1
    threshold = _threshold(maxima, blocks, k)
    for block in range(blocks):
        if maxima[block] >= threshold:
            for at in range(block * length, min((block + 1) * length, bits.size)):
                # Written always, kept if it counts: a branch here would often be guessed wrong.
                magnitude = bits[at] & _MAGNITUDE
                values[found], places[found] = magnitude, at
                found += magnitude >= threshold
    return found


@compiled
def _candidates_simd(bits: Any, k: int, length: int, scratch: Any) -> int:
    """The same, with blocks whose values lie eight apart, so that eight are done at once."""
    maxima, values, places = scratch[0], scratch[1], scratch[2]
    blocks = found = 0
    for first in range(0, bits.size, 8 * length):
        block_maxima(bits, first, first + 8 * length, maxima, blocks)
        blocks += 8
    threshold = _threshold(maxima, blocks, k)
    for first in range(0, bits.size, 64):
        left = mask_at_least(bits, first, threshold)
        at = first + lowest_bit(left)
        values[found], places[found] = bits[at] & _MAGNITUDE, at
        found += left != 0  # most rows have one or none, and which is not to be guessed
        left &= left - 1
        while left != 0:
            at = first + lowest_bit(left)
            left &= left - 1
            values[found], places[found] = bits[at] & _MAGNITUDE, at
            found += 1
    return found


@compiled
def topk(bits: Any, k: int, scratch: Any, chosen: Any) -> None:
    """Fill `chosen` with the indices of the k largest magnitudes, ascending; of equals, the first.

    `bits` is the chunk's float32 values seen as int32, `scratch` has three rows of its length."""
    if k == bits.size:
        for i in range(k):
            chosen[i] = i
        return
    length = _block_length(bits.size, k)
    if bits.size % (8 * length) == 0:
        found = _candidates_simd(bits, k, length, scratch)
    else:
        found = _candidates(bits, k, length, scratch)
    _select(scratch[1], scratch[2], found, k, chosen)


@compiled
def _strike_least(values: Any, found: int) -> None:
    """Strike out the smallest candidate; of equals, the last."""
    at, least = 0, values[0]
    for i in range(1, found):
        smaller = values[i] <= least
        at, least = i if smaller else at, values[i] if smaller else least
    values[at] = _STRUCK


@compiled
def _select(values: Any, places: Any, found: int, k: int, chosen: Any) -> None:
    """The k largest of the candidates; those equal to the smallest of them from the left."""
    if found - k <= _FEW:
        for _ in range(found - k):
            _strike_least(values, found)
        taken = 0
        for i in range(found):
            places[taken] = places[i]
            taken += values[i] != _STRUCK
        chosen[:] = places[:k]
        return
    least = _kth_largest(values, found, k, 0)
    above = 0
    for i in range(found):
        above += values[i] > least
    equals, taken = k - above, 0
    for i in range(found):
        if values[i] > least or (values[i] == least and equals > 0):
            equals -= values[i] == least
            chosen[taken] = places[i]
            taken += 1
