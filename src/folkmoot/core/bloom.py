"""Bloom filters sized for the run: FNV-1a from a key each, bits counted from the lowest.

The keys are not sent: they come from the round's seed and the witness's index, so a witness cannot
choose keys that make its filter say what it likes, and two witnesses err independently.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_PRIME = 0x100000001B3
# ln(1/0.01) / ln(2)^2 bits an item, and the 7 keys that are best for it, give 1 % false hits.
BITS_PER_ITEM = 9.5851
KEYS = 7
Items = Sequence[bytes] | NDArray[np.uint8]


class Shape(NamedTuple):
    bits: int
    keys: tuple[int, ...]


def bloom_bits(items: int) -> int:
    """Bits for `items` items at 1 %, in whole 64-bit words."""
    return max(1, -int(-items * BITS_PER_ITEM // 64)) * 64


@lru_cache(128)  # a few rounds of all witnesses
def bloom_shape(items: int, seed: int, owner: int) -> Shape:
    """The filter that `owner` (its index in the round) fills in a round with `seed`."""
    root = seed.to_bytes(8, "little") + owner.to_bytes(8, "little")
    keys = tuple(
        int.from_bytes(sha256(b"bloom" + root + bytes([k])).digest()[:8], "little")
        for k in range(KEYS)
    )
    return Shape(bloom_bits(items), keys)


def positions(items: Items, shape: Shape) -> NDArray[np.int64]:
    """The bits of every item (all of one length), one row an item."""
    columns = as_rows(items).T.astype(np.uint64, order="C")
    state = np.repeat(np.array(shape.keys, np.uint64)[:, None], columns.shape[1], axis=1)
    prime = np.uint64(_PRIME)
    for column in columns:
        state ^= column
        state *= prime
    return (state % np.uint64(shape.bits)).astype(np.int64).T


def as_rows(items: Items) -> NDArray[np.uint8]:
    """Items of one length as the rows of an array."""
    if isinstance(items, np.ndarray):
        return items
    width = len(items[0]) if items else 1
    return np.frombuffer(b"".join(items), np.uint8).reshape(len(items), width)


def fill(items: Items, shape: Shape) -> bytes:
    """A filter that holds `items`."""
    bits = np.zeros(shape.bits, np.uint8)
    bits[positions(items, shape).ravel()] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def holds(bloom: bytes, items: Items, shape: Shape) -> NDArray[np.bool_]:
    """For every item, whether the filter (perhaps falsely) holds it."""
    bits = np.unpackbits(np.frombuffer(bloom, np.uint8), bitorder="little").view(np.bool_)
    hit: NDArray[np.bool_] = np.all(bits[positions(items, shape)], axis=1)
    return hit


def overfull(bloom: bytes, items: int) -> bool:
    """Whether more bits are set than `items` items can set: a filter made to say yes."""
    return int.from_bytes(bloom, "little").bit_count() > items * KEYS
