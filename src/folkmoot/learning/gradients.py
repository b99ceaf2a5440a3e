"""From a batch of tokens to a loss and gradients, in micro-batches of bounded memory.

The gradient is that of the mean loss over every token of the batch, however it is cut:
each micro-batch contributes its *sum* divided by the whole batch's token count. Micro-batches
run in order on one device, so the same batch gives the same bits on the same machine.
"""

import math

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from folkmoot.learning.models import Precision, compute_type, logits

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32] | npt.NDArray[np.int64]


def as_tensor(tokens: Tokens, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(tokens, dtype=np.int64)).to(device)


def summed_loss(model: nn.Module, tokens_BT1: Tensor, precision: Precision = "fp32") -> Tensor:
    """Sum over a batch of the cross-entropy of each token given those before it."""
    with compute_type(precision, tokens_BT1.device):
        logits_BTV = logits(model, tokens_BT1[:, :-1])
    flat = logits_BTV.float().flatten(0, 1)
    return F.cross_entropy(flat, tokens_BT1[:, 1:].flatten(), reduction="sum")


def loss_and_gradients(
    model: nn.Module,
    tokens_NT1: Tokens,
    micro_batch: int = 0,
    precision: Precision = "fp32",
) -> float:
    """Add the batch's mean-loss gradient to every `.grad`; give the mean loss.

    `micro_batch` is how many sequences go through the model at once; 0 means all.
    """
    count, length = tokens_NT1.shape
    if count == 0 or length < 2:
        raise ValueError(f"a batch needs a sequence of at least 2 tokens; got {tokens_NT1.shape}")
    device = next(model.parameters()).device
    predicted = count * (length - 1)
    total = 0.0
    for start in range(0, count, micro_batch or count):
        part = as_tensor(tokens_NT1[start : start + (micro_batch or count)], device)
        loss = summed_loss(model, part, precision) / predicted
        loss.backward()
        total += loss.item()
    if not math.isfinite(total):
        raise FloatingPointError(
            f"the loss of this batch is {total}; lower the learning rate, or check that every"
            " token is below the model's vocab_size"
        )
    return total
