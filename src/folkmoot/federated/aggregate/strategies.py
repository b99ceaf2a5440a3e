"""Every strategy a federation's config can name, as one type that decodes from its `[aggregation]`
table.
"""

from __future__ import annotations

from typing import Any

from folkmoot.federated.aggregate.clipped import Clipped
from folkmoot.federated.aggregate.fedavg import FedAvg
from folkmoot.federated.aggregate.fedbuff import FedBuff
from folkmoot.federated.aggregate.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from folkmoot.federated.aggregate.krum import Krum
from folkmoot.federated.aggregate.private import Private
from folkmoot.federated.aggregate.strategy import Strategy
from folkmoot.federated.aggregate.trimmed_mean import Median, TrimmedMean
from folkmoot.host.named_code import load_code

AnyStrategy = (
    FedAvg
    | FedAvgM
    | FedAdagrad
    | FedAdam
    | FedYogi
    | Median
    | TrimmedMean
    | Krum
    | Clipped
    | FedBuff
    | Private
)


def load_strategy(name: str) -> Any:
    """The owner's own strategy that `module:Class` names: a subclass of `Strategy`."""
    kind = load_code(name)
    if not (isinstance(kind, type) and issubclass(kind, Strategy)):
        raise ValueError(f"{name} is no strategy: it must be a subclass of aggregate.Strategy")
    return kind


def tag_of(kind: Any) -> str:
    """By which the decoder knows a strategy."""
    return str(kind.__struct_config__.tag)
