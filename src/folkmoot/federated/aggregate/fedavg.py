"""FedAvg (McMahan et al. 2017): the mean of the models, weighted by samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from folkmoot.federated.aggregate import Update
from folkmoot.federated.aggregate.linear import mean
from folkmoot.federated.aggregate.strategy import Figures, Strategy, common_layout, write_linear
from folkmoot.federated.arrays import Sink, Source


class FedAvg(Strategy, frozen=True, tag="fedavg"):
    """The default. In the initial round, where nobody has samples, all weigh the same."""

    needs_only_the_mean: ClassVar[bool] = True

    def combine(
        self,
        reference: Source | None,
        updates: Sequence[Update],
        memory: Source | None,
        out: Sink,
        memory_out: Sink | None,
        seed: bytes,
    ) -> Figures:
        terms, divisor = mean(updates)
        write_linear(common_layout(reference, updates), terms, divisor, out)
        return {"samples": float(sum(update.samples for update in updates))}
