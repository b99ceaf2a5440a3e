"""What an aggregator makes of a round's updates: their weighted sum, for the coordinator above.

Σ samples · model in float64, block by block, in the order of ids, as for a model that is made here:
only the division and the last rounding are left to the coordinator above.
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from folkmoot.core.federation.state import Delivery, State
from folkmoot.federated.aggregate import ModelUpdate
from folkmoot.federated.aggregate.linear import sum_layout, weighted_sum
from folkmoot.federated.aggregate.strategy import write_linear
from folkmoot.federated.coordinator.bucket import CoordinatorBucket
from folkmoot.federated.coordinator.config import Federation
from folkmoot.federated.coordinator.updates import opened, weighed
from folkmoot.federated.model_file.writer import ModelWriter
from folkmoot.federated.secure.masked_update import UnmaskedMean
from folkmoot.federated.secure.masks import Mask


class Summed(NamedTuple):
    """The sum of a round's updates lies at `path`."""

    round: int
    path: Path
    samples: int
    participants: int


def write_sum(
    config: Federation,
    store: CoordinatorBucket,
    state: State,
    deliveries: Sequence[Delivery],
    residue: Sequence[Mask] | None = None,
) -> Summed:
    """Write the sum of the round's updates. With `residue` they are masked, and only it is read."""
    with ExitStack() as stack:
        reference, updates = opened(config, store, state, deliveries, stack)
        assert reference is not None  # nobody makes first weights below an aggregator
        participants = sum(max(1, update.participants) for update in updates)
        layout = sum_layout(reference.layout)
        if residue is None:
            updates = weighed(updates, config.security.max_weight)
        else:
            mean = UnmaskedMean(reference, updates, residue, config.secure.precision, layout)
            updates = [ModelUpdate("sum", mean.samples, mean, base=reference)]
        path = store.sum_path(state.round)
        out = stack.enter_context(closing(ModelWriter(path, layout)))
        write_linear(layout, weighted_sum(updates), 1.0, out)
        # Not synced: after a power cut it is made again of the same updates.
        out.commit(durable=False)
        return Summed(state.round, path, sum(update.samples for update in updates), participants)
