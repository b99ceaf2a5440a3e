"""A model as named arrays in one safetensors body, read and written in blocks.

Promises:
- A header is bounded and checked before a byte of data is read: names, dtypes, shapes and offsets
  must describe exactly the bytes that are there. Anything else is a `BadModel` with a reason.
- Reading fills the caller's buffer and writing takes the caller's block, so memory is one block
  whatever the size of the model or the number of models.
- A body written here loads with the `safetensors` package, and the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MAX_HEADER_BYTES = 16 * 1024 * 1024
MAX_ARRAYS = 65_536
MAX_NAME = 512
MAX_DIMENSIONS = 16
#: One block fits a core's second-level cache: 64 Ki elements is what the summing kernels like best.
BLOCK = 65_536

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
NAMES: dict[np.dtype[Any], str] = {dtype: name for name, dtype in DTYPES.items()}


class BadModel(ValueError):
    """A body that is not a model this federation reads; the message says what is wrong."""


class ArrayMeta(msgspec.Struct, frozen=True):
    """One array of a model: its dtype as safetensors spells it, and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def numpy(self) -> np.dtype[Any]:
        return DTYPES[self.dtype]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.numpy.itemsize


#: The arrays of a model by name, in the order in which their data is laid out.
Layout = Mapping[str, ArrayMeta]


class ModelSource(Protocol):
    """A model that can be read in blocks."""

    @property
    def layout(self) -> Layout: ...

    def read(self, name: str, start: int, out: Array) -> None:
        """Fill `out` (one-dimensional, of the array's dtype) from flat position `start`."""

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[str, int, Array]]:
        """Every element once, in layout order, as (name, flat start, values).

        `values` is a view of a buffer that the next step overwrites.
        """


def read_blocks(source: ModelSource, size: int) -> Iterator[tuple[str, int, Array]]:
    """`blocks` of a source that can `read`."""
    for name, meta in source.layout.items():
        buffer = np.empty(min(size, meta.size), meta.numpy)
        for start in range(0, meta.size, size):
            values = buffer[: min(size, meta.size - start)]
            source.read(name, start, values)
            yield name, start, values


class ModelSink(Protocol):
    """A model that is written in blocks; safe to call from several threads."""

    def write(self, name: str, start: int, values: Array) -> None:
        """Put one-dimensional `values` at flat position `start` of array `name`."""


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def layout_of(arrays: Mapping[str, Array]) -> dict[str, ArrayMeta]:
    """The layout in which `arrays` are written: widest dtype first, then by name.

    Equal models are thus equal bytes, and every array is aligned.
    """
    layout = {}
    for name in sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name)):
        array = arrays[name]
        dtype = NAMES.get(array.dtype.newbyteorder("<"))
        if dtype is None:
            raise BadModel(
                f"array {name!r} has dtype {array.dtype}; use one of {', '.join(map(str, NAMES))}"
            )
        layout[name] = ArrayMeta(dtype, tuple(array.shape))
    return layout


def encode_header(layout: Layout) -> bytes:
    """The bytes before the data: a length, then JSON padded so that the data is aligned."""
    entries, position = {}, 0
    for name, meta in layout.items():
        entries[name] = _Entry(meta.dtype, meta.shape, (position, position + meta.nbytes))
        position += meta.nbytes
    body = msgspec.json.encode(entries)
    body += b" " * (-(8 + len(body)) % 64)
    return len(body).to_bytes(8, "little") + body


def decode_header(head: bytes, total: int) -> tuple[dict[str, ArrayMeta], dict[str, int]]:
    """Layout and absolute data offsets of a body of `total` bytes that begins with `head`."""
    length = header_length(head[:8], total)
    if len(head) < 8 + length:
        raise BadModel(f"the header ends after {len(head)} of {8 + length} bytes")
    try:
        raw = msgspec.json.decode(head[8 : 8 + length], type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(body, type=_Entry) for name, body in raw.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadModel(f"the header is not a safetensors header: {error}") from None
    return _checked(entries, 8 + length, total)


def header_length(head: bytes, total: int) -> int:
    """The length of the JSON header, from a body's first eight bytes; refused when absurd."""
    if len(head) < 8:
        raise BadModel(f"{len(head)} bytes are too few for a safetensors body")
    length = int.from_bytes(head, "little")
    if not 2 <= length <= min(MAX_HEADER_BYTES, total - 8):
        raise BadModel(f"a header of {length} bytes does not fit a body of {total} bytes")
    return length


def _checked(
    entries: dict[str, _Entry], data: int, total: int
) -> tuple[dict[str, ArrayMeta], dict[str, int]]:
    if not 1 <= len(entries) <= MAX_ARRAYS:
        raise BadModel(f"{len(entries)} arrays; expected between 1 and {MAX_ARRAYS}")
    layout, offsets, position = {}, {}, 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        _check_entry(name, entry)
        meta = ArrayMeta(entry.dtype, entry.shape)
        if entry.data_offsets != (position, position + meta.nbytes):
            raise BadModel(f"array {name!r} lies at {entry.data_offsets}, expected {position} on")
        layout[name], offsets[name] = meta, data + position
        position += meta.nbytes
    if data + position != total:
        raise BadModel(f"the header describes {data + position} bytes, the body has {total}")
    return layout, offsets


def _check_entry(name: str, entry: _Entry) -> None:
    if not 1 <= len(name) <= MAX_NAME:
        raise BadModel(f"an array name has {len(name)} characters; at most {MAX_NAME}")
    if entry.dtype not in DTYPES:
        raise BadModel(f"array {name!r} has dtype {entry.dtype!r}; known: {', '.join(DTYPES)}")
    if len(entry.shape) > MAX_DIMENSIONS or any(side < 0 for side in entry.shape):
        raise BadModel(f"array {name!r} has shape {entry.shape}")


def array_views(
    data: NDArray[np.uint8], layout: Layout, offsets: Mapping[str, int]
) -> dict[str, Array]:
    """Every array of a body, as views of its bytes."""
    return {
        name: data[offsets[name] : offsets[name] + meta.nbytes].view(meta.numpy).reshape(meta.shape)
        for name, meta in layout.items()
    }
