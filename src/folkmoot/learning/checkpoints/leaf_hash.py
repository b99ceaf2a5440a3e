"""The two hashes that a state hash is made of. Needs no torch: a server checks with them, too."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from blake3 import blake3

_LEAF = "folkmoot state hash v1: leaf"
_ROOT = "folkmoot state hash v1: root"


def leaf_hasher(name: str, dtype: str, shape: Sequence[int], threads: int = 1) -> Any:
    """A hasher that makes the leaf of a parameter from its little-endian bytes."""
    described = msgspec.json.encode([name, dtype, list(shape)])
    hasher = blake3(derive_key_context=_LEAF, max_threads=threads)
    hasher.update(len(described).to_bytes(8, "little") + described)
    return hasher


def root(leaves: Mapping[str, bytes]) -> bytes:
    return blake3(
        msgspec.json.encode([[name, leaves[name].hex()] for name in sorted(leaves)]),
        derive_key_context=_ROOT,
    ).digest()
