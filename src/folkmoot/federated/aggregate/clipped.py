"""FedAvg with each step cut to a length: one participant can move the model only so far."""

from __future__ import annotations

from folkmoot.federated.aggregate import Closing
from folkmoot.federated.aggregate.linear import clipped_mean, mean, sample_weights
from folkmoot.federated.aggregate.norms import clip_factors, distances
from folkmoot.federated.aggregate.strategy import (
    Figures,
    Strategy,
    common_layout,
    require,
    write_linear,
)


class Clipped(Strategy, frozen=True, tag="clipped"):
    """Steps longer than `clip_norm` (L2, over the whole model) are scaled down to it."""

    clip_norm: float

    def __post_init__(self) -> None:
        require(self.clip_norm > 0, f"clip_norm is {self.clip_norm}; expected more than 0")

    def combine(self, closing: Closing) -> Figures:
        layout, reference, updates = common_layout(closing), closing.reference, closing.updates
        if reference is None:  # initial weights are not a step
            write_linear(layout, *mean(updates), closing.out)
            return {"clipped": 0.0}
        factors = clip_factors(distances(layout, reference, updates), self.clip_norm)
        weights = [float(samples) for samples in sample_weights(updates)]
        write_linear(layout, clipped_mean(reference, updates, weights, factors), 1.0, closing.out)
        return {"clipped": float(sum(factor < 1.0 for factor in factors))}
