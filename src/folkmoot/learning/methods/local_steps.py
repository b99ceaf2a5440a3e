"""AdamW steps at home: what DiLoCo and SparseLoCo do between two exchanges.

The result is how far the weights went; the weights themselves are put back, and when a closure
raises, so is the optimizer's state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from folkmoot.core.method_config import DiLoCoConfig, SparseLoCoConfig
from folkmoot.learning.methods.adamw import AdamW
from folkmoot.learning.methods.flat_parameters import FlatParameters, norm
from folkmoot.learning.methods.protocol import Closure


def clip_to(grads: torch.Tensor, limit: float) -> None:
    """Scale the gradient down to norm `limit` where it is longer; 0 is no limit."""
    length = finite(grads)
    if 0.0 < limit < length:
        grads.mul_(limit / length)


def finite(grads: torch.Tensor) -> float:
    """The norm of the gradient, which must be a number."""
    length = norm(grads)
    if not math.isfinite(length):
        raise FloatingPointError(
            "the gradient has values that are not finite, so there is nothing to contribute; "
            "lower the learning rate or look at this batch's data"
        )
    return length


class LocalSteps:
    def __init__(self, flat: FlatParameters, config: DiLoCoConfig | SparseLoCoConfig) -> None:
        self.flat, self.config = flat, config
        r = config
        self.adam = AdamW(flat.weights, r.beta1, r.beta2, r.eps, r.weight_decay)

    def travel(self, closure: Closure, lr: float) -> tuple[torch.Tensor, float]:
        """Weights before minus weights after the local steps, and the mean loss."""
        weights, adam = self.flat.weights, self.adam
        kept = weights.clone()
        before = adam.first.clone(), adam.second.clone(), adam.steps
        try:
            loss = sum(self._step(closure, i, lr) for i in range(self.config.local_steps))
            distance = kept - weights
        except BaseException:
            adam.first.copy_(before[0])
            adam.second.copy_(before[1])
            adam.steps = before[2]
            raise
        finally:
            weights.copy_(kept)
        return distance, loss / self.config.local_steps

    def _step(self, closure: Closure, number: int, lr: float) -> float:
        self.flat.clear_grads()
        loss = closure(number)
        self.flat.collect_grads()
        clip_to(self.flat.grads, self.config.clip)
        self.adam.step(self.flat.weights, self.flat.grads, lr)
        return loss

    def state(self) -> dict[str, torch.Tensor]:
        return self.adam.state("own.adam")

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        if any(name.startswith("own.") for name in state):
            self.adam.load("own.adam", state)
        else:
            self.adam.zero()
