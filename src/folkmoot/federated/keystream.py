"""Secret bytes, expanded: AES-256 in counter mode, gigabytes a second, any part of the stream on
its own.

The stream of a key is fixed, so two machines that hold the same key hold the same bytes, and a
round that is repeated after a crash draws the same ones.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from folkmoot.federated.model_file.layout import Array

AES_BLOCK = 16


def derive_key(secret: bytes, *purpose: str) -> bytes:
    """A key of its own for each purpose."""
    digest = hashlib.blake2b(secret, digest_size=32, person=b"folkmoot-key")
    for word in purpose:
        digest.update(len(word.encode()).to_bytes(4, "little") + word.encode())
    return digest.digest()


class Keystream:
    """Any part of the stream of any key, up to `largest` bytes at a time. One per thread."""

    def __init__(self, largest: int) -> None:
        # Room for a start inside a block, and for the block more that the cipher asks for.
        self._zeros = memoryview(bytes(largest + AES_BLOCK))
        self._buffer = np.empty(largest + 2 * AES_BLOCK, np.uint8)

    def words(
        self, key: bytes, position: int, count: int, dtype: type[np.unsignedinteger[Any]]
    ) -> Array:
        """`count` words of the stream from word `position` on; valid until the next call."""
        size = np.dtype(dtype).itemsize
        block, skipped = divmod(position * size, AES_BLOCK)
        length = skipped + count * size
        counter = modes.CTR(block.to_bytes(AES_BLOCK, "big"))
        cipher = Cipher(algorithms.AES(key), counter).encryptor()
        cipher.update_into(self._zeros[:length], self._buffer.data)
        return self._buffer[skipped:length].view(dtype)
