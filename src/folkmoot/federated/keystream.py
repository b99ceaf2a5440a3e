"""Secret bytes, expanded: AES-256 in counter mode, gigabytes a second, any part of the stream on
its own.

The stream of a key is fixed, so two machines that hold the same key hold the same bytes, and a
round that is repeated after a crash draws the same ones.
"""

from __future__ import annotations

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from folkmoot.federated.arrays import Array

AES_BLOCK = 16


def derive_key(secret: bytes, *purpose: str) -> bytes:
    """A key of its own for each purpose."""
    digest = hashlib.blake2b(secret, digest_size=32, person=b"folkmoot-key")
    for word in purpose:
        digest.update(len(word.encode()).to_bytes(4, "little") + word.encode())
    return digest.digest()


class Keystream:
    """Fills arrays from the stream of `key`. Not to be shared between threads."""

    def __init__(self, key: bytes, largest: int) -> None:
        self._algorithm = algorithms.AES(key)
        self._zeros = memoryview(bytes(largest))
        # The cipher wants room for one block more than it writes.
        self._buffer = np.empty(largest + AES_BLOCK, np.uint8)

    def words(self, position: int, count: int, dtype: type[np.unsignedinteger]) -> Array:
        """`count` words of the stream from word `position` on; valid until the next call.

        `position` must begin an AES block: a multiple of 4 for 32-bit words, of 2 for 64-bit ones.
        """
        size = np.dtype(dtype).itemsize
        block, rest = divmod(position * size, AES_BLOCK)
        if rest:
            raise ValueError(f"word {position} does not begin a block of {AES_BLOCK} bytes")
        counter = modes.CTR(block.to_bytes(AES_BLOCK, "big"))
        written = Cipher(self._algorithm, counter).encryptor()
        written.update_into(self._zeros[: count * size], self._buffer.data)
        return self._buffer[: count * size].view(dtype)
