"""Masks: streams of random 64-bit words, added to one update and taken away from another or the
sum.

A model's arrays lie one after the other on the stream, in layout order, so every span of every
array has its own words and any span can be made on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from folkmoot.federated.keystream import Keystream, derive_key
from folkmoot.federated.model_file.layout import BLOCK, Array, Layout


class Mask(NamedTuple):
    """A stream's key and whether it is added (+1) or subtracted (−1)."""

    key: bytes
    sign: int


class Masker:
    """Adds masks to spans of a model with `layout`. One per thread."""

    def __init__(self, masks: Sequence[Mask], layout: Layout) -> None:
        self._masks, self._stream = masks, Keystream(8 * BLOCK)
        starts = accumulate((meta.size for meta in layout.values()), initial=0)
        self._offsets = dict(zip(layout, starts, strict=False))

    def add(self, name: str, start: int, words: Array) -> None:
        """words += Σ ± mask, modulo 2⁶⁴, in place."""
        for first in range(0, words.size, BLOCK):
            part = words[first : first + BLOCK]
            position = self._offsets[name] + start + first
            for key, sign in self._masks:
                words_of_key = self._stream.words(key, position, part.size, np.uint64)
                (np.add if sign > 0 else np.subtract)(part, words_of_key, out=part)


def agree(private: bytes, public: bytes, *context: str) -> bytes:
    """The secret that two holders of X25519 keys share, for this context only.

    Raises ValueError for the few public keys with which every secret would be the same.
    """
    own = X25519PrivateKey.from_private_bytes(private)
    shared = own.exchange(X25519PublicKey.from_public_bytes(public))
    return derive_key(shared, *context)


def public_key(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def pair_mask(own: str, private: bytes, other: str, public: bytes, context: str) -> Mask:
    """The mask between two members: whose id sorts first adds it, the other subtracts it."""
    low, high = sorted((own, other))
    key = agree(private, public, "pair mask", context, low, high)
    return Mask(key, 1 if own == low else -1)


def self_mask(seed: bytes, own: str, context: str) -> Mask:
    return Mask(derive_key(seed, "self mask", context, own), 1)
