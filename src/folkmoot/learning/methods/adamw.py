"""AdamW on a flat buffer, with the same bits for any number of threads.

Every operation is elementwise and rounds once: a product is finished before it is added, because a
fused multiply-add rounds differently in a loop's vector body and in its tail, and where the tail
lies depends on the threads. The root is taken in float64 and rounded, which is the correctly
rounded one everywhere; torch's float32 root is not.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

_BLOCK = 1 << 20
"""Values treated at a time, so that temporaries stay small beside the model."""


class AdamW:
    def __init__(
        self, like: torch.Tensor, beta1: float, beta2: float, eps: float, weight_decay: float
    ) -> None:
        self.beta1, self.beta2, self.eps, self.weight_decay = beta1, beta2, eps, weight_decay
        self.first, self.second = torch.zeros_like(like), torch.zeros_like(like)
        self.steps = 0

    def step(self, weights: torch.Tensor, grads: torch.Tensor, lr: float) -> None:
        self.steps += 1
        buffers = (weights, grads, self.first, self.second)
        for w, g, m, v in zip(*(b.split(_BLOCK) for b in buffers), strict=True):
            self._step(w, g, m, v, lr)

    def _step(
        self, w: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, lr: float
    ) -> None:
        m.mul_(self.beta1).add_(g * (1.0 - self.beta1))
        v.mul_(self.beta2).add_((g * g).mul_(1.0 - self.beta2))
        unbiased = v.double().div_(1.0 - self.beta2**self.steps)
        root = unbiased.sqrt_().float().add_(self.eps)
        w.mul_(1.0 - lr * self.weight_decay)
        w.sub_((m * (lr / (1.0 - self.beta1**self.steps))).div_(root))

    def zero(self) -> None:
        self.first.zero_()
        self.second.zero_()
        self.steps = 0

    def state(self, prefix: str) -> dict[str, torch.Tensor]:
        return {
            f"{prefix}.first": self.first,
            f"{prefix}.second": self.second,
            f"{prefix}.steps": torch.tensor(self.steps),
        }

    def load(self, prefix: str, state: Mapping[str, torch.Tensor]) -> None:
        self.first.copy_(state[f"{prefix}.first"])
        self.second.copy_(state[f"{prefix}.second"])
        self.steps = int(state[f"{prefix}.steps"])
