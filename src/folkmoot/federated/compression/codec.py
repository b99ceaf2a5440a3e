"""How the step of one array is written in fewer bytes, and read again, a span at a time.

- bf16: the upper half of each float32, rounded to the nearest, ties to even. Half the bytes; the
  relative error of a value is at most 2^-8.
- int8: whole numbers from -127 to 127 times a scale for each 4,096 values. A quarter of the bytes;
  the error is at most half a scale, which is the block's largest value / 254.
- top_k: the share `keep` of the values with the largest magnitude, exactly, as float32, with their
  places. The others are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil
from typing import Literal

import msgspec
import numpy as np

from folkmoot.core.config import Broken
from folkmoot.federated.model_file.layout import Array, ArrayMeta, Layout

#: Values that share a scale.
BLOCK = 4096
SCALE, INDEX, VALUE = "#scale", "#index", "#value"
#: Reads a part of an encoded array: its name, the first element, and how many.
Read = Callable[[str, int, int], Array]
Method = Literal["none", "bf16", "int8", "top_k"]


class Compression(msgspec.Struct, frozen=True, kw_only=True):
    """`[compression]`: how updates travel."""

    method: Method = "none"
    # With top_k, the share of a step's values that travels.
    keep: float = 0.01

    def rules(self) -> Iterator[Broken]:
        if not 0 < self.keep <= 1:
            yield Broken("keep", "must be more than 0 and at most 1")

    def count(self, meta: ArrayMeta) -> int:
        """How many values of an array travel with top_k."""
        return min(meta.size, max(1, ceil(self.keep * meta.size)))


def is_compressed(meta: ArrayMeta) -> bool:
    return meta.dtype in ("F32", "F64")


def encoded_layout(layout: Layout, how: Compression) -> dict[str, ArrayMeta]:
    """The arrays in which a step of a model with `layout` travels."""
    encoded: dict[str, ArrayMeta] = {}
    for name, meta in layout.items():
        if not is_compressed(meta):
            encoded[name] = meta
        elif how.method == "bf16":
            encoded[name] = ArrayMeta("I16", meta.shape)
        elif how.method == "int8":
            encoded[name] = ArrayMeta("I8", meta.shape)
            encoded[name + SCALE] = ArrayMeta("F32", (-(-meta.size // BLOCK),))
        else:
            count = (how.count(meta),)
            encoded[name + INDEX] = ArrayMeta("I64", count)
            encoded[name + VALUE] = ArrayMeta("F32", count)
    return encoded


def encode_step(name: str, step: Array, how: Compression) -> dict[str, Array]:
    """A step (float32) as the arrays in which it travels."""
    flat = np.ascontiguousarray(step, np.float32).reshape(-1)
    if how.method == "bf16":
        return {name: _to_bf16(flat).reshape(step.shape)}
    if how.method == "int8":
        numbers, scales = _to_int8(flat)
        return {name: numbers.reshape(step.shape), name + SCALE: scales}
    count = how.count(ArrayMeta("F32", step.shape))
    index = np.sort(np.argpartition(np.abs(flat), flat.size - count)[flat.size - count :])
    return {name + INDEX: index.astype(np.int64), name + VALUE: flat[index]}


def decode_span(
    name: str, start: int, size: int, how: Compression, read: Read, index: Array | None = None
) -> Array:
    """A span of a step, as float32; `index` are the places of a top_k array."""
    if how.method == "bf16":
        return _from_bf16(read(name, start, size))
    if how.method == "int8":
        first, last = start // BLOCK, -(-(start + size) // BLOCK)
        scales = np.repeat(read(name + SCALE, first, last - first), BLOCK)
        begin = start - first * BLOCK
        product: Array = np.multiply(read(name, start, size), scales[begin : begin + size])
        return product
    assert index is not None
    lower, upper = np.searchsorted(index, [start, start + size])
    step = np.zeros(size, np.float32)
    if upper > lower:
        step[index[lower:upper] - start] = read(name + VALUE, int(lower), int(upper - lower))
    return step


def decoded(
    name: str, shape: tuple[int, ...], encoded: Mapping[str, Array], how: Compression
) -> Array:
    """A whole step, as its receiver reads it."""

    def read(part: str, start: int, size: int) -> Array:
        return encoded[part].reshape(-1)[start : start + size]

    size = int(np.prod(shape, dtype=np.int64))
    return decode_span(name, 0, size, how, read, encoded.get(name + INDEX)).reshape(shape)


def _to_bf16(flat: Array) -> Array:
    bits = flat.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype(np.uint16).view(np.int16)


def _from_bf16(halves: Array) -> Array:
    return (halves.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _to_int8(flat: Array) -> tuple[Array, Array]:
    blocks = -(-flat.size // BLOCK)
    padded = np.zeros(blocks * BLOCK, np.float32)
    padded[: flat.size] = flat
    rows = padded.reshape(blocks, BLOCK)
    scales = (np.abs(rows).max(1) / 127).astype(np.float32) if blocks else np.empty(0, np.float32)
    by = np.where(scales > 0, scales, 1).astype(np.float32)
    numbers = np.clip(np.rint(rows / by[:, None]), -127, 127).astype(np.int8)
    return numbers.reshape(-1)[: flat.size], scales
