"""Named tensors as a safetensors file, made chunk by chunk without a copy of them all.

The format is a JSON header (name → dtype, shape, offsets) and then the tensors' bytes; the
`safetensors` library reads the result, here and in `transformers`.
"""

import json
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from folkmoot.learning.checkpoints.leaf_hash import DTYPES

CHUNK = 8 << 20
NAMES = {torch_name: name for name, (torch_name, _) in DTYPES.items()}


def chunks(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The bytes of a safetensors file, in pieces of at most CHUNK."""
    # Widest types first, as the library does, so that every tensor starts aligned.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        tensor = tensors[name]
        if str(tensor.dtype) not in NAMES:
            raise ValueError(f"{name}: a tensor of {tensor.dtype} cannot be saved")
        start, end = end, end + tensor.numel() * tensor.element_size()
        shape = list(tensor.shape)
        header[name] = {
            "dtype": NAMES[str(tensor.dtype)],
            "shape": shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        flat = tensors[name].detach().contiguous().cpu().flatten()
        content = flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")
        for at in range(0, len(content), CHUNK):
            yield content[at : at + CHUNK]


def untied(model: nn.Module) -> dict[str, Tensor]:
    """A model's state with tensors that share memory kept once, under their first name."""
    state: dict[str, Tensor] = {}
    seen: set[tuple[int, int]] = set()
    for name, tensor in model.state_dict().items():
        place = (tensor.data_ptr(), tensor.numel())
        if tensor.numel() and place in seen:
            continue
        seen.add(place)
        state[name] = tensor
    return state
