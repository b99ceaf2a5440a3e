"""A result on trial: does it lower the loss on some samples more than others' results do?

The weights take a small step along the result's direction less the mean of the others', and then
the opposite one; whoever trained on the samples has the lower loss after the first. All directions
count with the same length. Both steps instead of one, because what curves the loss is then the same
on both sides, and two forward passes of each sample are all it costs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from folkmoot.learning.gradients import Tokens, as_tensor, summed_loss
from folkmoot.learning.methods.protocol import trainable
from folkmoot.learning.models import Precision

STEP = 0.001
"""The length of a step, in lengths of all weights together."""


@torch.no_grad()
def passes(
    model: nn.Module,
    result: torch.Tensor,
    others: Sequence[torch.Tensor],
    tokens_BT1: Tokens,
    precision: Precision = "fp32",
) -> bool:
    """The model comes back as it was, bit for bit."""
    along = _unit(result)
    for other in others:
        along.sub_(_unit(other), alpha=1 / len(others))
    batch = as_tensor(tokens_BT1, next(model.parameters()).device)
    training = model.training
    model.eval()
    try:
        with _moved(model, -along):
            toward = float(summed_loss(model, batch, precision))
        with _moved(model, along):
            away = float(summed_loss(model, batch, precision))
    finally:
        model.train(training)
    return toward < away


def _unit(direction: torch.Tensor) -> torch.Tensor:
    """What is not a number goes nowhere."""
    length = float(torch.linalg.vector_norm(direction))
    usable = 0.0 < length < float("inf")
    return direction / length if usable else torch.zeros_like(direction)


@contextmanager
def _moved(model: nn.Module, along: torch.Tensor) -> Iterator[None]:
    parameters = [parameter for _, parameter in trainable(model)]
    before = [parameter.detach().clone() for parameter in parameters]
    length = float(torch.linalg.vector_norm(torch.stack([x.norm() for x in before])))
    pieces = torch.split(along, [x.numel() for x in before])
    try:
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.add_(piece.view(parameter.shape), alpha=STEP * length)
        yield
    finally:
        for parameter, kept in zip(parameters, before, strict=True):
            parameter.copy_(kept)
