"""The two hashes that a state hash is made of. Needs no torch: a server checks with them, too."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from blake3 import blake3

DTYPES = {
    "F64": ("torch.float64", 8),
    "F32": ("torch.float32", 4),
    "F16": ("torch.float16", 2),
    "BF16": ("torch.bfloat16", 2),
    "I64": ("torch.int64", 8),
    "I32": ("torch.int32", 4),
    "I16": ("torch.int16", 2),
    "I8": ("torch.int8", 1),
    "U8": ("torch.uint8", 1),
    "BOOL": ("torch.bool", 1),
}
"""Types by their name in a safetensors file: torch's name, which is hashed, and a value's bytes."""
_LEAF = "folkmoot state hash v1: leaf"
_ROOT = "folkmoot state hash v1: root"


def leaf_hasher(name: str, dtype: str, shape: Sequence[int], threads: int = 1) -> Any:
    """A hasher that makes the leaf of a parameter from its little-endian bytes."""
    described = msgspec.json.encode([name, dtype, list(shape)])
    hasher = blake3(derive_key_context=_LEAF, max_threads=threads)
    hasher.update(len(described).to_bytes(8, "little") + described)
    return hasher


def root_hash(leaf_hashes: Mapping[str, bytes]) -> bytes:
    return blake3(
        msgspec.json.encode([[name, leaf_hashes[name].hex()] for name in sorted(leaf_hashes)]),
        derive_key_context=_ROOT,
    ).digest()
