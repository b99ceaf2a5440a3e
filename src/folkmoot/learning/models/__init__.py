"""Build the model a config describes, on the best device at hand.

`build(config, seed)` gives a torch module whose weights depend on config and seed alone.
`logits(model, tokens)` hides the one difference between our GPT and a Hugging Face model.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from folkmoot.core.model_config import ArchitectureConfig, GptConfig
from folkmoot.learning.models.gpt import GPT
from folkmoot.learning.models.initial import initialise

__all__ = ["GPT", "Precision", "best_device", "build", "compute_type", "logits"]

Precision = Literal["fp32", "bf16"]


def best_device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def build(
    config: ArchitectureConfig, seed: int, device: torch.device | str | None = None
) -> nn.Module:
    """The model of this config. Weights are fp32: `Precision` is what it computes in."""
    where = best_device() if device is None else torch.device(device)
    if isinstance(config, GptConfig):
        model: nn.Module = GPT(config)
        initialise(model, seed, layers=config.layers)
    else:
        from folkmoot.learning.models import huggingface

        model = huggingface.build(config, seed)
    return model.to(where)


def logits(model: nn.Module, tokens_BT: Tensor) -> Tensor:
    out = model(tokens_BT)
    return out if isinstance(out, Tensor) else out.logits


def compute_type(precision: Precision, device: torch.device) -> torch.autocast:
    """A context in which matrix products run in `precision`.

    Weights stay fp32, since steps of a thousandth of a weight vanish in bf16's 8 bits.
    """
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
