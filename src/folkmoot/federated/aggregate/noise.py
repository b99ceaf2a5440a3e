"""Gaussian noise for differential privacy, from secret bytes.

Each value is half the sum of four Box–Muller normals drawn from a cipher's stream. The sum is
again normal, and hides the gaps of floating point that would otherwise let one recover the noise
from its last bits (Mironov 2012; Holohan and Braghin 2021). The same secret gives the same noise,
and a secret belongs to one sum: repeated after a crash it is the same, and any other sum gets fresh
noise.
"""

from __future__ import annotations

import numpy as np

from folkmoot.federated.aggregate.spans import ArraySpan
from folkmoot.federated.keystream import Keystream, derive_key
from folkmoot.federated.model_file.layout import BLOCK, Array

DRAWS = 4


class Noise:
    """Standard normal values for one span after another; buffers belong to one thread."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._stream = Keystream(8 * DRAWS * (BLOCK + 1))

    def __call__(self, span: ArraySpan) -> Array:
        key = derive_key(self._secret, "noise", span.name, str(span.start))
        even = span.size + span.size % 2
        words = self._stream.words(key, 0, DRAWS * even, np.uint64)
        normals = box_muller(words).reshape(DRAWS, even)
        total: Array = np.add.reduce(normals, axis=0)[: span.size]
        return np.multiply(total, 0.5, out=total)


def box_muller(words: Array) -> Array:
    """As many standard normal values as there are random 64-bit words, an even number."""
    half = len(words) // 2
    # In (0, 1] so that the logarithm is finite; 53 bits are what float64 holds.
    uniform = ((words >> np.uint64(11)) + np.uint64(1)) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniform[:half]))
    angle = 2.0 * np.pi * uniform[half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
