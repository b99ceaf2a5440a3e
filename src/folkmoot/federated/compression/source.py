"""The coordinator's side: a compressed update, read like any other model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from folkmoot.federated.aggregate.checks import first_not_finite
from folkmoot.federated.compression.codec import (
    INDEX,
    SCALE,
    VALUE,
    Compression,
    decode_span,
    encoded_layout,
    is_compressed,
)
from folkmoot.federated.model_file.layout import BLOCK, Array, Layout, ModelSource, read_blocks


class CompressedUpdate:
    """A `ModelSource`: the model that a step in `travelled` makes of `base`."""

    def __init__(self, travelled: ModelSource, base: ModelSource, how: Compression) -> None:
        self._travelled, self._base, self._how = travelled, base, how
        self._indices: dict[str, Array] = {}

    @property
    def layout(self) -> Layout:
        return self._base.layout

    def read(self, name: str, start: int, out: Array) -> None:
        if not is_compressed(self.layout[name]):
            self._travelled.read(name, start, out)
            return
        self._base.read(name, start, out)
        out += decode_span(name, start, out.size, self._how, self._part, self._index(name))

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[str, int, Array]]:
        return read_blocks(self, size)

    def _part(self, name: str, start: int, size: int) -> Array:
        part = np.empty(size, self._travelled.layout[name].numpy)
        self._travelled.read(name, start, part)
        return part

    def _index(self, name: str) -> Array | None:
        """Where the values of a top_k array belong: eight bytes for each that travels."""
        if self._how.method != "top_k":
            return None
        if name not in self._indices:
            whole = self._travelled.layout[name + INDEX].size
            self._indices[name] = self._part(name + INDEX, 0, whole)
        return self._indices[name]


def bad_compressed(travelled: ModelSource, base: Layout, how: Compression) -> str:
    """Why what travelled is no step of a model with layout `base`, or nothing."""
    expected = encoded_layout(base, how)
    if dict(travelled.layout) != expected:
        odd = sorted(set(travelled.layout.items()) ^ set(expected.items()), key=str)[0][0]
        return f"array {odd!r} is not what a step in {how.method} has; the coordinator asked for it"
    for name in travelled.layout:
        if name.endswith((SCALE, VALUE)) and (reason := _not_finite(travelled, name)):
            return reason
        if name.endswith(INDEX) and not _rising(travelled, name, base[name[: -len(INDEX)]].size):
            return f"array {name!r} must have rising places within the array"
    return ""


def _whole(source: ModelSource, name: str) -> Array:
    values = np.empty(source.layout[name].size, source.layout[name].numpy)
    source.read(name, 0, values)
    return values


def _not_finite(source: ModelSource, name: str) -> str:
    values = _whole(source, name)
    offset = first_not_finite(values)
    return "" if offset is None else f"array {name!r} at {offset} is {values[offset]}"


def _rising(source: ModelSource, name: str, size: int) -> bool:
    places = _whole(source, name)
    inside = places.size == 0 or (places[0] >= 0 and places[-1] < size)
    return bool(inside and (np.diff(places) > 0).all())
