"""SparseLoCo: DiLoCo whose way gone is sent as its largest values, the rest being kept for later.

    Δ = w − w after `local_steps` AdamW steps      (own data, own AdamW state)
    e ← decay · e + Δ;  send q = largest values of e, in two bits each;  e ← e − q
    w ← w − outer_lr · mean q                      (everyone the same)

Sarfi et al., arXiv 2508.15706. The kept residual e takes the place of DiLoCo's outer momentum. A
contribution that is not among the payloads of its round goes back into e.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from folkmoot.core.method_config import SparseLoCoConfig, validated
from folkmoot.learning.methods.flat_parameters import FlatParameters
from folkmoot.learning.methods.influence import bounded_mean, contrast
from folkmoot.learning.methods.local_steps import LocalSteps
from folkmoot.learning.methods.protocol import (
    Closure,
    Contribution,
    Refusal,
    has_own_state,
    refuse_bad,
)
from folkmoot.learning.methods.sketch import of_values
from folkmoot.learning.methods.sparse_wire import SparseWire


class SparseLoCoMethod:
    delay = 0

    def __init__(self, module: torch.nn.Module, config: SparseLoCoConfig) -> None:
        self.config = validated(config)
        self.flat = FlatParameters(module)
        self.wire = SparseWire(self.flat.shapes, config.k)
        self.payload_size, self.local_steps = self.wire.size, config.local_steps
        self.local = LocalSteps(self.flat, self.config)
        self.error = torch.zeros_like(self.flat.weights)
        self.sent = b""
        """The last contribution, until its round is applied."""

    def contribute(self, closure: Closure, step: int, lr: float) -> Contribution:
        self.flat.refresh()
        distance, loss = self.local.run(closure, lr)
        self._settle([])
        self.error.mul_(self.config.error_decay).add_(distance)
        payload = self.wire.pack(self.error)
        self._add(self.error, payload, -1.0)
        self.sent = payload
        return Contribution(payload, loss)

    def _add(self, total: torch.Tensor, payload: bytes, sign: float) -> None:
        place, value = (x.to(total.device) for x in self.wire.unpack(payload))
        # A payload names no place twice, so this is one plain addition for each.
        total[place] += value * sign

    def _settle(self, payloads: Sequence[bytes]) -> None:
        """The last contribution has landed among `payloads`, or comes back."""
        if self.sent and self.sent not in payloads:
            self._add(self.error, self.sent, 1.0)
        self.sent = b""

    def apply(
        self, payloads: Sequence[bytes], step: int, lr: float, samples: Sequence[int] = ()
    ) -> None:
        self.flat.refresh()
        refuse_bad(self, payloads)
        self._settle(payloads)
        if not payloads:
            return
        going = bounded_mean(self._values, payloads, samples)
        self.flat.weights.sub_(going.mul_(self.config.outer_lr))

    def _values(self, payload: bytes) -> torch.Tensor:
        values = torch.zeros_like(self.flat.weights)
        self._add(values, payload, 1.0)
        return values

    def check(self, payload: bytes) -> Refusal | None:
        return self.wire.check(payload)

    def sketch(self, payload: bytes) -> bytes:
        return of_values(*(x.numpy() for x in self.wire.unpack(payload)))

    def contrast(self, payload: bytes, others: Sequence[bytes]) -> torch.Tensor:
        return contrast(self._values, payload, others)

    def state_dict(self) -> dict[str, torch.Tensor]:
        sent = torch.frombuffer(bytearray(self.sent), dtype=torch.uint8) if self.sent else None
        return {
            "own.error": self.error,
            "own.sent": torch.zeros(0, dtype=torch.uint8) if sent is None else sent,
            **self.local.state(),
        }

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        self.local.load(state)
        self.sent = b""
        self.error.zero_()
        if has_own_state(state):
            self.error.copy_(state["own.error"])
            self.sent = state["own.sent"].cpu().numpy().tobytes()
