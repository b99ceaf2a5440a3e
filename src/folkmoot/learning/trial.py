"""A result on trial: does it lower the loss on some samples more than others' results do?

The weights take a small step along the result's direction less the mean of the others', and then
the opposite one; whoever trained on the samples has the lower loss after the first. Both steps
instead of one, because what curves the loss is then the same on both sides, and two forward passes
of each sample are all it costs.
"""

import torch
from torch import nn

from folkmoot.learning.gradients import Tokens, as_tensor, summed_loss
from folkmoot.learning.methods.protocol import trainable
from folkmoot.learning.models import Precision

STEP = 0.001
"""The length of a step, in lengths of all weights together."""


@torch.no_grad()
def passes(
    model: nn.Module, along: torch.Tensor, tokens_BT1: Tokens, precision: Precision = "fp32"
) -> bool:
    """`along` is a method's `contrast`. The model comes back as it was, bit for bit."""
    parameters = [parameter for _, parameter in trainable(model)]
    before = [parameter.detach().clone() for parameter in parameters]
    batch = as_tensor(tokens_BT1, parameters[0].device)
    step, training = _step(before, along), model.training
    losses = []
    model.eval()
    try:
        for sign in (-1.0, 1.0):
            for parameter, kept, piece in zip(parameters, before, step, strict=True):
                torch.add(kept, piece, alpha=sign, out=parameter)
            losses.append(float(summed_loss(model, batch, precision)))
    finally:
        for parameter, kept in zip(parameters, before, strict=True):
            parameter.copy_(kept)
        model.train(training)
    return losses[0] < losses[1]


def _step(weights: list[torch.Tensor], along: torch.Tensor) -> list[torch.Tensor]:
    """A small step, cut to the shapes of the weights."""
    length = torch.linalg.vector_norm(torch.stack([x.norm() for x in weights]))
    scaled = along * (STEP * length / torch.linalg.vector_norm(along))
    pieces = torch.split(scaled, [x.numel() for x in weights])
    return [piece.view(x.shape) for piece, x in zip(pieces, weights, strict=True)]
