"""The norm of a gradient, which must be a number, and clipping to a largest one."""

from __future__ import annotations

import math

import numpy as np
import torch

_BLOCK = 4096


def norm(x: torch.Tensor) -> float:
    """The Euclidean norm, the same for any number of threads: fixed blocks, summed in float64."""
    end = x.numel() // _BLOCK * _BLOCK
    blocks = torch.linalg.vector_norm(x[:end].view(-1, _BLOCK), dim=1)
    rest = torch.linalg.vector_norm(x[end:])
    squares = torch.cat((blocks, rest.view(1))).cpu().numpy().astype(np.float64) ** 2
    return math.sqrt(float(np.cumsum(squares)[-1]))


def finite_norm(grads: torch.Tensor) -> float:
    length = norm(grads)
    if not math.isfinite(length):
        raise FloatingPointError(
            "the gradient has values that are not finite, so there is nothing to contribute; "
            "lower the learning rate or look at this batch's data"
        )
    return length


def clip_scale(grads: torch.Tensor, limit: float) -> float:
    """What scales the gradient down to norm `limit` where it is longer, else 1; 0 is no limit."""
    length = finite_norm(grads)
    return limit / length if 0.0 < limit < length else 1.0


def clip(grads: torch.Tensor, limit: float) -> None:
    if (scale := clip_scale(grads, limit)) != 1.0:
        grads.mul_(scale)
