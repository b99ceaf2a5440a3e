"""A model, its tokenizer and its training state, from a checkpoint's folder on this machine.

Works on any folder in the Hugging Face layout. A plain Llama becomes our own GPT and needs no
`transformers`; other architectures are built by it.
"""

from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from folkmoot.core.model_config import HuggingFaceConfig
from folkmoot.learning.checkpoints.manifest import CheckpointError
from folkmoot.learning.data import tokenizer
from folkmoot.learning.models import best_device, build
from folkmoot.learning.models.gpt import GPT
from folkmoot.learning.models.huggingface_config import gpt_from_llama


def load_model(folder: Path, device: torch.device | str | None = None) -> nn.Module:
    where = torch.device(device) if device else best_device()
    config = _json(folder / "config.json")
    weights = folder / "model.safetensors"
    ours = gpt_from_llama(config)
    if ours is None or not weights.is_file():
        return build(HuggingFaceConfig(path=str(folder)), seed=0, device=where)
    model = GPT(ours)
    found = {name: tensor.float() for name, tensor in _tensors(weights).items()}
    if ours.tie_embeddings:
        found.pop("lm_head.weight", None)
    try:
        model.load_state_dict(found)
    except RuntimeError as error:
        raise CheckpointError(f"{weights}: does not fit its config.json: {error}") from error
    return model.to(where)


def load_weights(model: nn.Module, folder: Path) -> None:
    """Put a checkpoint's weights into a model that is already built, bit for bit."""
    found = _tensors(folder / "model.safetensors")
    state = model.state_dict()
    tied = {name for name, t in state.items() if name not in found} if found else set(state)
    present = {state[name].data_ptr() for name in found if name in state}
    if set(found) - set(state) or any(state[name].data_ptr() not in present for name in tied):
        raise CheckpointError(f"{folder}: its weights are those of another model")
    with torch.no_grad():
        for name, tensor in found.items():
            if state[name].shape != tensor.shape:
                raise CheckpointError(
                    f"{folder}: {name} has shape {list(tensor.shape)}, the model's has"
                    f" {list(state[name].shape)}"
                )
            state[name].copy_(tensor)


def load_tokenizer(folder: Path) -> tokenizer.Tokenizer:
    return tokenizer.load(str(folder))


def load_state(folder: Path) -> dict[str, Tensor]:
    """The exchange method's state; empty when the checkpoint carries none."""
    path = folder / "state.safetensors"
    return _tensors(path) if path.is_file() else {}


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: cannot be read as safetensors: {error}") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
