"""Two seeded permutations, byte-compatible with the public design.

`swap_or_not` moves one index without touching the others (anyone can check one position);
`lcg_shuffle` orders a whole list. Each one-at-a-time definition has a vectorised twin, and the
tests hold the two equal, index by index.
"""

from functools import lru_cache
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

ROUNDS = 90
_MULTIPLIER = 6364136223846793005
_INCREMENT = 1442695040888963407
_MASK = (1 << 64) - 1


def swap_or_not(index: int, total: int, seed: bytes) -> int:
    """Where `index` of `total` lands under `seed`."""
    if not 0 <= index < total:
        raise ValueError(f"index {index} is outside of 0..{total - 1}")
    for r in range(ROUNDS):
        prefix = seed + bytes([r])
        pivot = int.from_bytes(sha256(prefix).digest()[:8], "little") % total
        flip = (pivot + total - index) % total
        position = max(index, flip)
        source = sha256(prefix + (position // 256).to_bytes(4, "little")).digest()
        if source[position % 256 // 8] >> (position % 8) & 1:
            index = flip
    return index


@lru_cache(maxsize=256)
def swap_or_not_few(total: int, seed: bytes) -> tuple[int, ...]:
    """`swap_or_not` of every index below `total`, up to 256, remembered.

    A small run asks for its positions once a witness, and all of them cost hardly more than one.
    """
    index = list(range(total))
    for r in range(ROUNDS):
        prefix = seed + bytes([r])
        pivot = int.from_bytes(sha256(prefix).digest()[:8], "little") % total
        bits = int.from_bytes(sha256(prefix + bytes(4)).digest(), "little")
        for at, here in enumerate(index):
            flip = (pivot - here) % total
            if bits >> (here if here > flip else flip) & 1:
                index[at] = flip
    return tuple(index)


def swap_or_not_all(total: int, seed: bytes) -> NDArray[np.int64]:
    """`swap_or_not` of every index below `total`, at once."""
    index = np.arange(total, dtype=np.int64)
    blocks = [block.to_bytes(4, "little") for block in range((total + 255) // 256)]
    for r in range(ROUNDS):
        prefix = seed + bytes([r])
        pivot = int.from_bytes(sha256(prefix).digest()[:8], "little") % total
        flip = pivot - index
        flip += (flip < 0) * total
        source = b"".join([sha256(prefix + block).digest() for block in blocks])
        bits = np.unpackbits(np.frombuffer(source, np.uint8), bitorder="little")
        index = np.where(bits[np.maximum(index, flip)], flip, index)
    return index


def lcg(seed: int, count: int) -> list[int]:
    """The first `count` numbers of the 64-bit linear congruential generator."""
    numbers = []
    for _ in range(count):
        seed = (seed * _MULTIPLIER + _INCREMENT) & _MASK
        numbers.append(seed)
    return numbers


def lcg_shuffle(count: int, seed: int) -> list[int]:
    """Fisher-Yates over 0..count-1 with the generator above."""
    order = list(range(count))
    for i, number in zip(range(count - 1, 0, -1), lcg(seed, count - 1), strict=True):
        j = number % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order
