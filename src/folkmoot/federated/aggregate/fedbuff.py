"""FedBuff (Nguyen et al. 2022): a new global model from each buffer of updates, fresh or stale.

A participant's step is measured from the global model it started from, however old, and counts
less the more models were made since: 1 / √(1 + staleness). Nobody waits for the slowest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from folkmoot.federated.aggregate import Closing, ModelUpdate
from folkmoot.federated.aggregate.linear import Term, mean, sample_weights
from folkmoot.federated.aggregate.strategy import (
    Figures,
    Strategy,
    common_layout,
    require,
    write_linear,
)
from folkmoot.federated.model_file.layout import ModelSource


class FedBuff(Strategy, frozen=True, tag="fedbuff"):
    """The federation's rules say how many updates make a buffer and how stale one may be."""

    learning_rate: float = 1.0
    weigh_samples: bool = True

    def __post_init__(self) -> None:
        require(self.learning_rate > 0, f"learning_rate is {self.learning_rate}; expected > 0")

    def combine(self, closing: Closing) -> Figures:
        layout, updates = common_layout(closing), closing.updates
        if closing.reference is None:
            write_linear(layout, *mean(updates), closing.out)
            return {"staleness": 0.0}
        write_linear(layout, self.terms(closing.reference, updates), 1.0, closing.out)
        return {"staleness": sum(update.staleness for update in updates) / len(updates)}

    def terms(self, reference: ModelSource, updates: Sequence[ModelUpdate]) -> list[Term]:
        """reference + η Σ wᵢ sᵢ (xᵢ − baseᵢ) / Σ wᵢ, each distinct base once."""
        weights = sample_weights(updates) if self.weigh_samples else [1] * len(updates)
        total = sum(weights)
        # Updates of equal staleness started from the same model, whoever opened its file.
        bases: dict[int, tuple[ModelSource, list[float]]] = {0: (reference, [-1.0])}
        terms = []
        for weight, update in zip(weights, updates, strict=True):
            share = self.learning_rate * discount(update.staleness) * weight / total
            terms.append(Term(share, update.source))
            base = (update.base or reference, list[float]())
            bases.setdefault(update.staleness, base)[1].append(share)
        return [Term(-math.fsum(shares), base) for base, shares in bases.values()] + terms


def discount(staleness: int) -> float:
    return 1.0 / math.sqrt(1.0 + staleness)
