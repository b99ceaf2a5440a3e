"""A hash of a model's parameters that all clients agree on, and that checks one parameter alone.

Persistent buffers count as parameters: they are stored, and must be equal, too.

    leaf   BLAKE3 over (name, dtype, shape) and the parameter's little-endian bytes
    root   BLAKE3 over (name, leaf) of all parameters, sorted by name

Clients compare roots. A joiner asks a peer for the leaf hashes, checks that they make the agreed
root, and then checks each parameter as it arrives. Tied parameters count once.
"""

from __future__ import annotations

import msgspec
import torch

from folkmoot.learning.checkpoints.leaf_hash import leaf_hasher, root_hash
from folkmoot.learning.checkpoints.safetensors_file import untied

_WORTH_THREADS = 1 << 20
"""Below a mebibyte, starting threads costs more than they save."""


class StateHash(msgspec.Struct, frozen=True):
    root: bytes
    leaf_hashes: dict[str, bytes]


def leaf_hash(name: str, tensor: torch.Tensor) -> bytes:
    """The hash of one parameter; the number of threads (torch's) does not change it."""
    values = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    threads = torch.get_num_threads() if values.size >= _WORTH_THREADS else 1
    hasher = leaf_hasher(name, str(tensor.dtype), list(tensor.shape), threads)
    hasher.update(values.data)
    return hasher.digest()


def state_hash(module: torch.nn.Module) -> StateHash:
    hashes = {name: leaf_hash(name, p) for name, p in untied(module).items()}
    return StateHash(root_hash(hashes), hashes)
