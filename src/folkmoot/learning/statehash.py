"""A hash of a model's parameters that all clients agree on, and that checks one parameter alone.

    leaf   BLAKE3 over (name, dtype, shape) and the parameter's little-endian bytes
    root   BLAKE3 over (name, leaf) of all parameters, sorted by name

Clients compare roots. A joiner asks a peer for the leaves, checks that they make the agreed root,
and then checks each parameter as it arrives against its leaf. Tied parameters count once.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import torch
from blake3 import blake3

_LEAF = "folkmoot state hash v1: leaf"
_ROOT = "folkmoot state hash v1: root"
_WORTH_THREADS = 1 << 20
"""Below a mebibyte, starting threads costs more than they save."""


class StateHash(msgspec.Struct, frozen=True):
    root: bytes
    leaves: dict[str, bytes]


def leaf(name: str, tensor: torch.Tensor) -> bytes:
    """The hash of one parameter; the number of threads (torch's) does not change it."""
    described = msgspec.json.encode([name, str(tensor.dtype), list(tensor.shape)])
    values = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    threads = torch.get_num_threads() if values.size >= _WORTH_THREADS else 1
    hasher = blake3(derive_key_context=_LEAF, max_threads=threads)
    hasher.update(len(described).to_bytes(8, "little") + described)
    hasher.update(values.data)
    return hasher.digest()


def root(leaves: Mapping[str, bytes]) -> bytes:
    return blake3(
        msgspec.json.encode([[name, leaves[name].hex()] for name in sorted(leaves)]),
        derive_key_context=_ROOT,
    ).digest()


def state_hash(module: torch.nn.Module) -> StateHash:
    leaves = {name: leaf(name, p) for name, p in module.named_parameters()}
    return StateHash(root(leaves), leaves)


def wrong_parameter(name: str, tensor: torch.Tensor, agreed: Mapping[str, bytes]) -> str | None:
    """A sentence if this parameter is not the one the leaves promise, else None."""
    if name not in agreed:
        return f"parameter {name} is not part of the agreed model"
    if leaf(name, tensor) != agreed[name]:
        return f"parameter {name} differs from the agreed one; fetch it from another peer"
    return None
