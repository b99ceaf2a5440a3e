"""FedAvg (McMahan et al. 2017): the mean of the models, weighted by samples."""

from __future__ import annotations

from typing import ClassVar

from folkmoot.federated.aggregate import Closing
from folkmoot.federated.aggregate.linear import mean
from folkmoot.federated.aggregate.strategy import Figures, Strategy, common_layout, write_linear


class FedAvg(Strategy, frozen=True, tag="fedavg"):
    """The default. In the initial round, where nobody has samples, all weigh the same."""

    needs_only_the_mean: ClassVar[bool] = True
    reads_once: ClassVar[bool] = True

    def combine(self, closing: Closing) -> Figures:
        write_linear(common_layout(closing), *mean(closing.updates), closing.out)
        return {"samples": float(sum(update.samples for update in closing.updates))}
