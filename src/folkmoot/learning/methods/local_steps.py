"""AdamW steps at home: what DiLoCo and SparseLoCo do between two exchanges.

The result is how far the weights went; the weights themselves are put back, and when a closure
raises, so is the optimizer's state.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from folkmoot.core import method_config
from folkmoot.learning.methods.adamw import AdamW
from folkmoot.learning.methods.clipping import clip
from folkmoot.learning.methods.flat_parameters import FlatParameters
from folkmoot.learning.methods.protocol import Closure, has_own_state


class LocalSteps:
    def __init__(self, flat: FlatParameters, config: method_config.LocalStepsConfig) -> None:
        self.flat, self.config = flat, config
        self.adam = AdamW(flat.weights, config.beta1, config.beta2, config.eps, config.weight_decay)

    def run(self, closure: Closure, lr: float) -> tuple[torch.Tensor, float]:
        """Weights before minus weights after the local steps, and the mean loss."""
        weights = self.flat.weights
        start = weights.clone()
        before = {name: x.clone() for name, x in self.state().items()}
        try:
            loss = sum(self._step(closure, i, lr) for i in range(self.config.local_steps))
            distance = start - weights
        except BaseException:
            self.load(before)
            raise
        finally:
            weights.copy_(start)
        return distance, loss / self.config.local_steps

    def _step(self, closure: Closure, number: int, lr: float) -> float:
        self.flat.clear_grads()
        loss = closure(number)
        self.flat.collect_grads()
        clip(self.flat.grads, self.config.clip)
        self.adam.step(self.flat.weights, self.flat.grads, lr)
        return loss

    def state(self) -> dict[str, torch.Tensor]:
        return self.adam.state("own.adam")

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        if has_own_state(state):
            self.adam.load("own.adam", state)
        else:
            self.adam.zero()
