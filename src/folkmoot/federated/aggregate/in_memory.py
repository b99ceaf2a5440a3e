"""Strategies on plain arrays: for notebooks, simulations and tests.

`combine_arrays` is one round of any strategy without a coordinator, with the same code and bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from folkmoot.federated.aggregate import Closing, ModelUpdate
from folkmoot.federated.aggregate.strategy import Strategy
from folkmoot.federated.model_file.layout import Array
from folkmoot.federated.model_file.memory import Arrays, MemoryModel


class Combined(msgspec.Struct, frozen=True):
    """The next global model, what the strategy remembers, and its figures."""

    model: dict[str, Array]
    memory: dict[str, Array]
    figures: dict[str, float]


def combine_arrays(
    strategy: Strategy,
    reference: Arrays | None,
    updates: Sequence[tuple[Arrays, int]],
    memory: Arrays | None = None,
    seed: bytes = bytes(32),
) -> Combined:
    """One round: `updates` are pairs of a model and its sample count, in participants' order."""
    base = MemoryModel(reference) if reference is not None else None
    given = [
        ModelUpdate(f"{index:06}", samples, MemoryModel(arrays), base=base)
        for index, (arrays, samples) in enumerate(updates)
    ]
    layout = (base or given[0].source).layout
    out, kept = MemoryModel.empty(layout), MemoryModel.empty(strategy.memory_layout(layout))
    last = MemoryModel(memory) if memory else None
    figures = strategy.combine(Closing(base, given, last, out, kept, seed))
    return Combined(out.arrays, kept.arrays, dict(figures))
