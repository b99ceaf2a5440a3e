"""A shuffle computed one index at a time, so that no list of all sequences is ever made.

A Feistel network permutes the numbers of 2k bits; an index that lands at or above `count` is
sent through again until it lands below ("cycle walking"), which makes the whole a permutation
of [0, count). Only integer arithmetic on 64-bit words: the same order on every machine.
"""

import hashlib

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
ROUNDS = 6


class Permutation:
    def __init__(self, count: int, seed: int, name: str = "") -> None:
        if not 1 <= count < 1 << 62:
            raise ValueError(f"a permutation of {count} things cannot be made")
        self.count = count
        self.half = max(1, ((count - 1).bit_length() + 1) // 2)
        digest = hashlib.sha512(f"folkmoot/shuffle/{seed}/{name}/{count}".encode()).digest()
        self.keys = np.frombuffer(digest, dtype="<u8")[:ROUNDS].astype(np.uint64)

    def __call__(self, indices: Indices) -> Indices:
        """Where each index goes. Indices must lie in [0, count)."""
        out = indices.astype(np.uint64)
        outside = np.arange(len(out))
        while len(outside):
            out[outside] = self._feistel(out[outside])
            outside = outside[out[outside] >= self.count]
        return out.astype(np.int64)

    def _feistel(self, x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        half, mask = np.uint64(self.half), np.uint64((1 << self.half) - 1)
        left, right = x >> half, x & mask
        for key in self.keys:
            left, right = right, left ^ (_mix(right + key) & mask)
        return (left << half) | right


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finaliser: every input bit changes every output bit half the time."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
