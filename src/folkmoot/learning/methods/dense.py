"""Dense averaging: everyone sends its whole gradient, and the mean goes through one optimizer.

This is data-parallel training, the baseline that the sparse methods are measured against. The
optimizer's state is shared: all clients feed it the same means and keep the same bits. Clipping is
done on the mean, as data-parallel training does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from folkmoot.core.method_config import DenseConfig, validated
from folkmoot.learning.methods.adamw import AdamW
from folkmoot.learning.methods.clipping import clip, finite_norm
from folkmoot.learning.methods.dense_wire import DenseWire
from folkmoot.learning.methods.flat_parameters import FlatParameters
from folkmoot.learning.methods.influence import bounded_mean, contrast
from folkmoot.learning.methods.protocol import Closure, Contribution, Refusal, refuse_bad
from folkmoot.learning.methods.sketch import of_values


class DenseMethod:
    delay = 0
    local_steps = 1

    def __init__(self, module: torch.nn.Module, config: DenseConfig) -> None:
        self.config = r = validated(config)
        self.flat = FlatParameters(module)
        self.wire = DenseWire(self.flat.shapes, "dense", r.bits)
        self.payload_size = self.wire.size
        self.momentum = torch.zeros_like(self.flat.weights) if r.optimizer == "sgd" else None
        self.adam: AdamW | None = None
        if r.optimizer == "adamw":
            self.adam = AdamW(self.flat.weights, r.beta1, r.beta2, r.eps, r.weight_decay)

    def contribute(self, closure: Closure, step: int, lr: float) -> Contribution:
        self.flat.refresh()
        self.flat.clear_grads()
        loss = closure(0)
        self.flat.collect_grads()
        finite_norm(self.flat.grads)
        return Contribution(self.wire.pack(self.flat.grads), loss)

    def apply(
        self, payloads: Sequence[bytes], step: int, lr: float, samples: Sequence[int] = ()
    ) -> None:
        self.flat.refresh()
        refuse_bad(self, payloads)
        if not payloads:
            return
        grads = bounded_mean(self.wire.unpack, payloads, samples).to(self.flat.weights.device)
        clip(grads, self.config.clip)
        if self.adam is not None:
            self.adam.step(self.flat.weights, grads, lr)
        elif self.momentum is not None:
            self.momentum.mul_(self.config.beta1).add_(grads)
            self.flat.weights.mul_(1.0 - lr * self.config.weight_decay).sub_(self.momentum * lr)

    def check(self, payload: bytes) -> Refusal | None:
        return self.wire.check(payload)

    def sketch(self, payload: bytes) -> bytes:
        return of_values(None, self.wire.unpack(payload).numpy())

    def contrast(self, payload: bytes, others: Sequence[bytes]) -> torch.Tensor:
        return contrast(self.wire.unpack, payload, others).to(self.flat.weights.device)

    def state_dict(self) -> dict[str, torch.Tensor]:
        if self.adam is not None:
            return self.adam.state("shared.adam")
        assert self.momentum is not None
        return {"shared.momentum": self.momentum}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        if self.adam is not None:
            self.adam.load("shared.adam", state)
        elif self.momentum is not None:
            self.momentum.copy_(state["shared.momentum"])
