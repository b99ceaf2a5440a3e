"""Differentially private FedAvg (McMahan et al. 2018): clip each step, add Gaussian noise to the
mean.

Every participant weighs the same and moves the sum by `clip_norm` at most; the noise has
`noise_multiplier` times that. The number of noisy sums is kept, so the ε it reports after each
round is right after a crash too. Arrays of integers get no noise and are left
as they were.

Initial weights are averaged as they are: they come from `init_weights`, before anybody saw data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from folkmoot.federated.aggregate import Closing
from folkmoot.federated.aggregate.accountant import epsilon, installed
from folkmoot.federated.aggregate.linear import LinearCombination, Term, clipped_mean, mean
from folkmoot.federated.aggregate.noise import Noise
from folkmoot.federated.aggregate.norms import clip_factors, distances
from folkmoot.federated.aggregate.spans import ArraySpan
from folkmoot.federated.aggregate.strategy import (
    Figures,
    Strategy,
    common_layout,
    require,
    write_blocks,
    write_linear,
)
from folkmoot.federated.model_file.layout import Array, ArrayMeta, Layout, ModelSource

ROUNDS = "noisy_rounds"


class Private(Strategy, frozen=True, tag="private"):
    """`delta` should be well below one over the number of participants."""

    #: Members of a masked sum clip and add the noise themselves: see secure/distributed_noise.py.
    needs_only_the_mean: ClassVar[bool] = True
    adds_noise: ClassVar[bool] = True

    clip_norm: float
    noise_multiplier: float
    delta: float = 1e-5

    def __post_init__(self) -> None:
        require(self.clip_norm > 0, f"clip_norm is {self.clip_norm}; expected more than 0")
        given = self.noise_multiplier
        require(given > 0, f"noise_multiplier is {given}; expected more than 0, typically about 1")
        require(0 < self.delta < 1, f"delta is {self.delta}; expected between 0 and 1")
        require(installed(), "the private strategy needs its accountant: pip install folkmoot[dp]")

    def memory_layout(self, layout: Layout) -> Layout:
        return {ROUNDS: ArrayMeta("I64", (1,))}

    def forecast(self, rounds: int) -> float:
        """ε at the end of a federation of so many rounds."""
        return epsilon(self.noise_multiplier, rounds, self.delta)

    def promise(self, rounds: int, *, masked: bool = False) -> str:
        """What a federation of so many rounds spends, in a sentence for its owner."""
        against = "; against this coordinator too, if fewer than a third collude" if masked else ""
        return (
            f"differential privacy: epsilon {self.forecast(rounds):.2f} for delta {self.delta:g} "
            f"after {rounds} rounds, for a participant that is in all of them{against}"
        )

    def combine(self, closing: Closing) -> Figures:
        layout, spent = common_layout(closing), noisy_rounds(closing.memory)
        if closing.reference is None or closing.summed:
            write_linear(layout, *mean(closing.updates), closing.out)
        else:
            self._write(layout, closing.reference, closing)
        if closing.reference is not None:
            # A round that was begun again with other updates has made two noisy sums.
            spent = max(spent + 1, closing.releases)
        if closing.memory_out is not None:
            closing.memory_out.write(ROUNDS, 0, np.array([spent]))
        return {"epsilon": self.forecast(spent), "delta": self.delta, "noisy_rounds": float(spent)}

    def _write(self, layout: Layout, reference: ModelSource, closing: Closing) -> None:
        updates = closing.updates
        factors = clip_factors(distances(layout, reference, updates), self.clip_norm)
        terms = clipped_mean(reference, updates, [1.0] * len(updates), factors)
        deviation = self.noise_multiplier * self.clip_norm / len(updates)

        def compute() -> Callable[[ArraySpan], Array]:
            centre, noise = LinearCombination(terms), Noise(closing.seed)
            keep = LinearCombination([Term(1.0, reference)])

            def values(span: ArraySpan) -> Array:
                if span.meta.numpy.kind != "f":
                    return keep(span)
                return centre(span) + deviation * noise(span)

            return values

        write_blocks(layout, compute, closing.out)


def noisy_rounds(memory: ModelSource | None) -> int:
    if memory is None:
        return 0
    count = np.zeros(1, np.int64)
    memory.read(ROUNDS, 0, count)
    return int(count[0])
