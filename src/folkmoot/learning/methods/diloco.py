"""DiLoCo: some AdamW steps at home, then one Nesterov step along the mean of how far everyone went.

    Δ = w − w after `local_steps` steps          (own data, own AdamW state)
    m ← μ m + mean Δ,   w ← w − η (mean Δ + μ m)  (everyone the same)

Douillard et al., arXiv 2311.08105. A lost contribution is lost: the next one starts
from the weights everyone has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from folkmoot.core.method_config import DiLoCoConfig, validated
from folkmoot.learning.methods.dense_wire import DenseWire
from folkmoot.learning.methods.flat_parameters import FlatParameters
from folkmoot.learning.methods.influence import bounded_mean, contrast
from folkmoot.learning.methods.local_steps import LocalSteps
from folkmoot.learning.methods.protocol import Closure, Contribution, Refusal, refuse_bad
from folkmoot.learning.methods.sketch import of_values


class DiLoCoMethod:
    delay = 0

    def __init__(self, module: torch.nn.Module, config: DiLoCoConfig) -> None:
        self.config = validated(config)
        self.flat = FlatParameters(module)
        self.wire = DenseWire(self.flat.shapes, "diloco", config.bits)
        self.payload_size, self.local_steps = self.wire.size, config.local_steps
        self.local = LocalSteps(self.flat, self.config)
        self.momentum = torch.zeros_like(self.flat.weights)

    def contribute(self, closure: Closure, step: int, lr: float) -> Contribution:
        self.flat.refresh()
        distance, loss = self.local.run(closure, lr)
        return Contribution(self.wire.pack(distance), loss)

    def apply(
        self, payloads: Sequence[bytes], step: int, lr: float, samples: Sequence[int] = ()
    ) -> None:
        self.flat.refresh()
        refuse_bad(self, payloads)
        if not payloads:
            return
        going = bounded_mean(self.wire.unpack, payloads, samples).to(self.flat.weights.device)
        self.momentum.mul_(self.config.outer_momentum).add_(going)
        going.add_(self.momentum * self.config.outer_momentum)
        self.flat.weights.sub_(going.mul_(self.config.outer_lr))

    def check(self, payload: bytes) -> Refusal | None:
        return self.wire.check(payload)

    def sketch(self, payload: bytes) -> bytes:
        return of_values(None, self.wire.unpack(payload).numpy())

    def contrast(self, payload: bytes, others: Sequence[bytes]) -> torch.Tensor:
        return contrast(self.wire.unpack, payload, others).to(self.flat.weights.device)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"shared.momentum": self.momentum, **self.local.state()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        self.momentum.copy_(state["shared.momentum"])
        self.local.load(state)
