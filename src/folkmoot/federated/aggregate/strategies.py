"""Every strategy a federation's config can name, as one type that decodes from its `[aggregation]`
table.
"""

from __future__ import annotations

from folkmoot.federated.aggregate.clipped import Clipped
from folkmoot.federated.aggregate.fedavg import FedAvg
from folkmoot.federated.aggregate.fedbuff import FedBuff
from folkmoot.federated.aggregate.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from folkmoot.federated.aggregate.krum import Krum
from folkmoot.federated.aggregate.private import Private
from folkmoot.federated.aggregate.trimmed_mean import Median, TrimmedMean

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
