"""DisTrO as an exchange method: the momentum lives in DCT space, one flat buffer per client.

contribute   look ahead (delay > 0); gradients; undo; m ← β m + DCT(g); send and take out the k
             largest coefficients of every chunk. What is not sent stays in m: error feedback.
apply        sum everyone's coefficients in the given order, every chunk of every payload with the
             same energy (amplitudes of one bit have it by themselves); invert once, treat, step.

The DCT is linear and orthonormal, so momentum of coefficients is the coefficients of the momentum,
and taking out what was sent is setting it to zero. A contribution that is not among the payloads of
its round was lost; half of it goes back into m, aged as if it had stayed there.

Look-ahead: while own contributions are in flight the gradient is taken where the weights are
expected to be when it is applied: one step per round in flight, along m, made orthogonal where the
treatment does so and else its sign. (With what is in flight added to m it learns a little worse.)
Meanwhile three bytes of every weight are backed up (backup.py), so every bit returns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
import numpy as np
import torch

from folkmoot.core.method_config import DistroConfig, validated
from folkmoot.learning.methods.bfloat16 import Floats
from folkmoot.learning.methods.clipping import clip_scale
from folkmoot.learning.methods.distro import wire
from folkmoot.learning.methods.distro.backend import backend_for
from folkmoot.learning.methods.distro.backup import WeightBackup, empty_backup
from folkmoot.learning.methods.distro.plan import make_plan
from folkmoot.learning.methods.distro.reference import contrast
from folkmoot.learning.methods.distro.rounding import float32
from folkmoot.learning.methods.distro.treatment import ORTHOGONAL, SIGN, stepping
from folkmoot.learning.methods.distro.wire import Indices
from folkmoot.learning.methods.flat_parameters import FlatParameters
from folkmoot.learning.methods.frame import check_frame
from folkmoot.learning.methods.influence import alignment_weights, sample_weights
from folkmoot.learning.methods.protocol import (
    Closure,
    Contribution,
    Refusal,
    has_own_state,
    refuse_bad,
)

RETURNED = 0.5
"""How much of a lost contribution is said again. It is a round old by then: with a fifth of the
updates missing, returning the whole learnt 1.4 % worse than returning half (docs/learning.md)."""


class InFlight(msgspec.Struct, frozen=True, eq=False):
    """An own contribution that has not been applied yet."""

    step: int
    index: Indices
    value: Floats
    payload: bytes


class DistroMethod:
    local_steps = 1

    def __init__(self, module: torch.nn.Module, config: DistroConfig) -> None:
        self.config = validated(config)
        self.flat = FlatParameters(module)
        self.plan = make_plan(self.flat.shapes, config.chunk, config.k, config.bits)
        self.delay, self.payload_size = config.delay, wire.payload_size(self.plan)
        self.backend = backend_for(self.flat.weights.device)
        self.momentum = torch.zeros_like(self.flat.weights)
        adam = config.treatment == "adam"
        self.second = torch.zeros_like(self.flat.weights) if adam else None
        self.applied = 0
        self.in_flight: list[InFlight] = []
        self._backup: WeightBackup | None = None

    def contribute(self, closure: Closure, step: int, lr: float) -> Contribution:
        self.flat.refresh()
        self.flat.clear_grads()
        with self._looking_ahead(lr):
            loss = closure(0)
        self.flat.collect_grads()
        scale = self._clip_scale()
        decay = float32(self.config.momentum)
        self._return_lost(self._replaced(step), [])
        index, value = self.backend.compress(
            self.plan, self.flat.grads, self.momentum, scale, decay
        )
        payload = self.backend.pack(self.plan, index, value)
        self.in_flight.append(InFlight(step, index, value, payload))
        return Contribution(payload, loss)

    def _clip_scale(self) -> float:
        return float32(clip_scale(self.flat.grads, self.config.clip))

    @contextmanager
    def _looking_ahead(self, lr: float) -> Iterator[None]:
        distance = float32(lr * self.config.lookahead * len(self.in_flight))
        if self.delay == 0 or distance == 0.0:
            yield
            return
        weights = self.flat.weights
        self._backup = backup = self._backup or empty_backup(weights)
        self.backend.back_up(weights, backup)
        along = ORTHOGONAL if self.config.treatment == "orthogonal" else SIGN
        try:
            self.backend.look_ahead(self.plan, weights, self.momentum, distance, along)
            yield
        finally:
            self.backend.restore(weights, backup)

    def apply(
        self, payloads: Sequence[bytes], step: int, lr: float, samples: Sequence[int] = ()
    ) -> None:
        self.flat.refresh()
        refuse_bad(self, payloads, self.backend.parallel_map)
        self._return_lost([f for f in self.in_flight if f.step <= step], payloads)
        if payloads:
            self.applied += 1
            weights = self._weights(payloads, samples)
            counted = [p for p, weight in zip(payloads, weights, strict=True) if weight]
            how = stepping(self.config, tuple(w for w in weights if w), self.applied, lr)
            self.backend.apply(self.plan, self.flat.weights, counted, self.second, how)

    def _weights(self, payloads: Sequence[bytes], samples: Sequence[int]) -> list[int]:
        """What each payload counts."""
        by_samples = sample_weights(samples, len(payloads))
        if not self.config.weigh_alignment:
            return list(by_samples)
        sketches = list(self.backend.parallel_map(self.sketch, payloads))
        products = [a * b for a, b in zip(by_samples, alignment_weights(sketches), strict=True)]
        common = math.gcd(*products)
        return [product // common for product in products]

    def _replaced(self, step: int) -> list[InFlight]:
        """Earlier attempts at this step, and rounds whose results should long have been applied."""
        return [f for f in self.in_flight if f.step >= step or f.step < step - self.delay - 1]

    def _return_lost(self, landed: list[InFlight], payloads: Sequence[bytes]) -> None:
        for f in landed:
            self.in_flight.remove(f)
            if f.payload not in payloads:
                age = sum(later.step > f.step for later in self.in_flight)
                scale = float32(RETURNED * self.config.momentum**age)
                self.backend.add_entries(self.plan, self.momentum, f.index, f.value, scale)

    def check(self, payload: bytes) -> Refusal | None:
        header = wire.header(self.plan)
        refusal = check_frame(payload, header, self.payload_size)
        return refusal or self.backend.check_body(self.plan, payload)

    def sketch(self, payload: bytes) -> bytes:
        return self.backend.sketch(self.plan, payload)

    def contrast(self, payload: bytes, others: Sequence[bytes]) -> torch.Tensor:
        return contrast(self.plan, self.flat.weights, payload, others)

    def state_dict(self) -> dict[str, torch.Tensor]:
        state = {"shared.applied": torch.tensor(self.applied)}
        if self.second is not None:
            state["shared.second"] = self.second
        state["own.momentum"] = self.momentum
        steps, shape = [f.step for f in self.in_flight], (-1, self.plan.entries)
        indices = np.array([f.index for f in self.in_flight], np.int32).reshape(shape)
        values = np.array([f.value for f in self.in_flight], np.float32).reshape(shape)
        state["own.in_flight.step"] = torch.tensor(steps, dtype=torch.int64)
        state["own.in_flight.index"] = torch.from_numpy(indices)
        state["own.in_flight.value"] = torch.from_numpy(values)
        return state

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        self.applied = int(state["shared.applied"])
        if self.second is not None:
            self.second.copy_(state["shared.second"])
        self.in_flight = []
        if not has_own_state(state):
            self.momentum.zero_()
            return
        self.momentum.copy_(state["own.momentum"])
        steps = state["own.in_flight.step"].tolist()
        indices = state["own.in_flight.index"].cpu().numpy()
        values = state["own.in_flight.value"].cpu().numpy()
        for step, index, value in zip(steps, indices, values, strict=True):
            payload = self.backend.pack(self.plan, index, value)
            self.in_flight.append(InFlight(step, index.copy(), value.copy(), payload))
