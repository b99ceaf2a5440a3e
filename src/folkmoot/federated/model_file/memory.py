"""A model in memory, read and written like one in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from folkmoot.federated.model_file.layout import BLOCK, Array, Layout, layout_of

Arrays = Mapping[str, Array]


class MemoryModel:
    """A model in memory: a `ModelSource` and a `ModelSink` at once."""

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
