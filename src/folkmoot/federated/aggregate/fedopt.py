"""Server optimizers: the weighted mean's step is a gradient, and the server takes it its own way.

FedAvgM (Hsu et al. 2019) keeps a momentum; FedAdagrad, FedAdam and FedYogi (Reddi et al. 2021,
algorithm 2, without bias correction, v₋₁ = τ²) keep a momentum and a variance. Both are float
arrays of the model's own shape that `combine` reads from `memory` and writes to `memory_out`, so a
run that resumes continues with the same bits. Arrays of integers have no gradient: they take the
mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from folkmoot.federated.aggregate import Closing
from folkmoot.federated.aggregate.linear import LinearCombination, SpanReader, mean
from folkmoot.federated.aggregate.spans import ArraySpan, for_each_span, write_span
from folkmoot.federated.aggregate.strategy import (
    Figures,
    Strategy,
    common_layout,
    require,
    write_blocks,
    write_linear,
)
from folkmoot.federated.model_file.layout import Array, ArrayMeta, Layout, ModelSink, ModelSource

MOMENTUM, VARIANCE = "m/", "v/"
State = Mapping[str, Array]


class ServerOptimizer(Strategy, frozen=True):
    """The part the four have in common: for each span, the mean's step, then `step`."""

    needs_only_the_mean: ClassVar[bool] = True

    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        require(self.learning_rate > 0, f"learning_rate is {self.learning_rate}; expected > 0")

    def kinds(self) -> Mapping[str, float]:
        """Prefix of each remembered array, and what it holds before the first round."""
        raise NotImplementedError

    def step(self, delta: Array, state: State) -> Array:
        """The change of the model for the mean's step `delta`; updates `state` in place."""
        raise NotImplementedError

    def memory_layout(self, layout: Layout) -> Layout:
        return {
            prefix + name: memory_meta(meta)
            for prefix in self.kinds()
            for name, meta in layout.items()
            if meta.numpy.kind == "f"
        }

    def combine(self, closing: Closing) -> Figures:
        layout = common_layout(closing)
        if closing.reference is None:
            write_linear(layout, *mean(closing.updates), closing.out)
            if closing.memory_out is not None:
                remember_start(self, layout, closing.memory_out)
            return {}
        if closing.memory_out is None:
            raise ValueError(f"{type(self).__name__} needs a place for its memory")
        reference, memory_out = closing.reference, closing.memory_out
        for_each_span(layout, lambda: self._worker(closing, reference, memory_out))
        return {}

    def _worker(
        self, closing: Closing, reference: ModelSource, memory_out: ModelSink
    ) -> Callable[[ArraySpan], None]:
        centre, reader = LinearCombination(*mean(closing.updates)), SpanReader()

        def advance(span: ArraySpan) -> None:
            values = centre(span)
            if span.meta.numpy.kind != "f":
                write_span(closing.out, span, values)
                return
            base = reader.read(reference, span).astype(np.float64)
            state = {
                prefix: recall(reader, closing.memory, prefix, start, span)
                for prefix, start in self.kinds().items()
            }
            np.subtract(values, base, out=values)
            np.add(base, self.step(values, state), out=base)
            write_span(closing.out, span, base)
            for prefix, kept in state.items():
                write_span(memory_out, memory_span(prefix, span), kept)

        return advance


class FedAvgM(ServerOptimizer, frozen=True, tag="fedavgm"):
    """m ← βm + Δ; x ← x + ηm."""

    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.momentum < 1, f"momentum is {self.momentum}; expected in [0, 1)")

    def kinds(self) -> Mapping[str, float]:
        return {MOMENTUM: 0.0}

    def step(self, delta: Array, state: State) -> Array:
        momentum = state[MOMENTUM]
        momentum *= self.momentum
        momentum += delta
        return self.learning_rate * momentum


class Adaptive(ServerOptimizer, frozen=True):
    """m ← β₁m + (1 − β₁)Δ; v by the subclass; x ← x + η m / (√v + τ)."""

    learning_rate: float = 0.1
    beta_1: float = 0.9
    tau: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.beta_1 < 1, f"beta_1 is {self.beta_1}; expected in [0, 1)")
        require(self.tau > 0, f"tau is {self.tau}; expected more than 0")

    def kinds(self) -> Mapping[str, float]:
        return {MOMENTUM: 0.0, VARIANCE: self.tau**2}

    def step(self, delta: Array, state: State) -> Array:
        momentum, variance = state[MOMENTUM], state[VARIANCE]
        momentum *= self.beta_1
        momentum += (1 - self.beta_1) * delta
        self.grow(variance, np.square(delta))
        return self.learning_rate * momentum / (np.sqrt(variance) + self.tau)

    def grow(self, variance: Array, square: Array) -> None:
        """Update `variance` in place from the squared step."""
        raise NotImplementedError


class FedAdagrad(Adaptive, frozen=True, tag="fedadagrad"):
    """v ← v + Δ², with no momentum unless asked."""

    beta_1: float = 0.0

    def grow(self, variance: Array, square: Array) -> None:
        variance += square


class Forgetting(Adaptive, frozen=True):
    """Old squares count less and less."""

    beta_2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.beta_2 < 1, f"beta_2 is {self.beta_2}; expected in [0, 1)")


class FedAdam(Forgetting, frozen=True, tag="fedadam"):
    """v ← β₂v + (1 − β₂)Δ²."""

    def grow(self, variance: Array, square: Array) -> None:
        variance *= self.beta_2
        variance += (1 - self.beta_2) * square


class FedYogi(Forgetting, frozen=True, tag="fedyogi"):
    """v ← v − (1 − β₂) Δ² sign(v − Δ²)."""

    def grow(self, variance: Array, square: Array) -> None:
        variance -= (1 - self.beta_2) * square * np.sign(variance - square)


def memory_meta(meta: ArrayMeta) -> ArrayMeta:
    """Moments of half-precision arrays are kept in single: they lie too close to zero."""
    return ArrayMeta("F32" if meta.dtype == "F16" else meta.dtype, meta.shape)


def memory_span(prefix: str, span: ArraySpan) -> ArraySpan:
    return ArraySpan(prefix + span.name, memory_meta(span.meta), span.start, span.size)


def recall(
    reader: SpanReader, memory: ModelSource | None, prefix: str, start: float, span: ArraySpan
) -> Array:
    """What was remembered for `span`, in float64; `start` before anything was."""
    if memory is None:
        return np.full(span.size, start)
    return reader.read(memory, memory_span(prefix, span)).astype(np.float64)


def remember_start(strategy: ServerOptimizer, layout: Layout, memory_out: ModelSink) -> None:
    """Write the memory as it is before the first step."""
    kinds = strategy.kinds()

    def start(span: ArraySpan) -> Array:
        return np.full(span.size, kinds[span.name[:2]])

    write_blocks(strategy.memory_layout(layout), lambda: start, memory_out)
