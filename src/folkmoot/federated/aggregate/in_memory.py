"""Strategies on plain arrays: for notebooks, simulations and tests.

`combine_arrays` is one round of any strategy without a coordinator, with the same code and bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from folkmoot.federated.aggregate import Aggregator, Closing, Update
from folkmoot.federated.model_file.layout import BLOCK, Array, Layout, layout_of

Arrays = Mapping[str, Array]


class MemoryModel:
    """A model in memory: a `Source` and a `Sink` at once."""

    def __init__(self, arrays: Arrays) -> None:
        self.layout = layout_of(arrays)
        self.arrays = {name: np.ascontiguousarray(arrays[name]) for name in self.layout}

    @classmethod
    def empty(cls, layout: Layout) -> MemoryModel:
        return cls({name: np.empty(meta.shape, meta.numpy) for name, meta in layout.items()})

    def read(self, name: str, start: int, out: Array) -> None:
        out[:] = self.arrays[name].reshape(-1)[start : start + out.size]

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[str, int, Array]]:
        for name, array in self.arrays.items():
            for start in range(0, array.size, size):
                yield name, start, array.reshape(-1)[start : start + size]

    def write(self, name: str, start: int, values: Array) -> None:
        self.arrays[name].reshape(-1)[start : start + values.size] = values


class Combined(msgspec.Struct, frozen=True):
    """The next global model, what the strategy remembers, and its figures."""

    model: dict[str, Array]
    memory: dict[str, Array]
    figures: dict[str, float]


def combine_arrays(
    strategy: Aggregator,
    reference: Arrays | None,
    updates: Sequence[tuple[Arrays, int]],
    memory: Arrays | None = None,
    seed: bytes = bytes(32),
) -> Combined:
    """One round: `updates` are pairs of a model and its sample count, in participants' order."""
    base = MemoryModel(reference) if reference is not None else None
    given = [
        Update(f"{index:06}", samples, MemoryModel(arrays), base=base)
        for index, (arrays, samples) in enumerate(updates)
    ]
    layout = (base or given[0].source).layout
    out, kept = MemoryModel.empty(layout), MemoryModel.empty(strategy.memory_layout(layout))
    last = MemoryModel(memory) if memory else None
    figures = strategy.combine(Closing(base, given, last, out, kept, seed))
    return Combined(out.arrays, kept.arrays, dict(figures))
