"""A model as named arrays in one safetensors body, read and written in blocks.

Promises:
- A header is bounded and checked before a byte of data is read: names, dtypes, shapes and offsets
  must describe exactly the bytes that are there. Anything else is a `BadModel` with a reason.
- Reading fills the caller's buffer and writing takes the caller's block, so memory is one block
  whatever the size of the model or the number of models.
- A body written here loads with the `safetensors` package, and the other way round.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import secrets
import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from folkmoot.host.files import sync_folder

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


class Source(Protocol):
    """A model that can be read in blocks."""

    @property
    def layout(self) -> Layout: ...

    def read(self, name: str, start: int, out: Array) -> None:
        """Fill `out` (one-dimensional, of the array's dtype) from flat position `start`."""

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[str, int, Array]]:
        """Every element once, in layout order, as (name, flat start, values).

        `values` is a view of a buffer that the next step overwrites.
        """


class Sink(Protocol):
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
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
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


def page_aligned(nbytes: int) -> NDArray[np.uint8]:
    """A buffer for file data that begins with a page.

    Some processors copy five times slower to an address that lies a few bytes behind the source's
    within its page, which is where the C library puts large buffers.
    """
    room = np.empty(nbytes + mmap.PAGESIZE, np.uint8)
    skip = -room.ctypes.data % mmap.PAGESIZE
    return room[skip : skip + nbytes]


class ModelFile:
    """A model in a local file, read in blocks with positioned reads. Close it, or use `with`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.nbytes = os.fstat(self._fd).st_size
            length = header_length(os.pread(self._fd, 8, 0), self.nbytes)
            self.head = os.pread(self._fd, 8 + length, 0)
            self.layout, self.offsets = decode_header(self.head, self.nbytes)
        except BaseException:
            os.close(self._fd)
            raise

    def read(self, name: str, start: int, out: Array) -> None:
        meta = self.layout[name]
        if out.dtype != meta.numpy or start < 0 or start + out.size > meta.size:
            raise ValueError(f"block {start}+{out.size} ({out.dtype}) does not fit {name!r} {meta}")
        view = memoryview(out.data).cast("B") if out.size else memoryview(b"")
        position, done = self.offsets[name] + start * meta.numpy.itemsize, 0
        while done < len(view):
            got = os.preadv(self._fd, [view[done:]], position + done)
            if got == 0:
                raise BadModel(f"{self.path.name} ends inside array {name!r}")
            done += got

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[str, int, Array]]:
        for name, meta in self.layout.items():
            buffer = page_aligned(min(size, meta.size) * meta.numpy.itemsize).view(meta.numpy)
            for start, stop in self._cuts(name, size):
                values = buffer[: stop - start]
                self.read(name, start, values)
                yield name, start, values

    def _cuts(self, name: str, size: int) -> Iterator[tuple[int, int]]:
        """Blocks that end at multiples of their length in the file: BLAKE3 takes them whole."""
        meta, start = self.layout[name], 0
        first = size - self.offsets[name] // meta.numpy.itemsize % size
        while start < meta.size:
            stop = min(start + (size if start else first), meta.size)
            yield start, stop
            start = stop

    def arrays(self) -> dict[str, Array]:
        """Every array as a read-only view of the file: no copy, pages are read when touched."""
        data = np.memmap(self.path, np.uint8, "r") if self.nbytes else np.empty(0, np.uint8)
        return {
            name: data[self.offsets[name] : self.offsets[name] + meta.nbytes]
            .view(meta.numpy)
            .reshape(meta.shape)
            for name, meta in self.layout.items()
        }

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ModelWriter:
    """A model written block by block into `path`, complete and durable only after `commit()`."""

    #: What the file looks like once it has its name.
    found: os.stat_result

    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: Layout,
        recycle: Path | None = None,
    ) -> None:
        """`recycle` is a file of ours to write over, if it is there: its pages are ready."""
        self.path, self.layout = Path(path), dict(layout)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.staging = _staging(self.path)
        self._fd = _reopened(recycle, self.staging) if recycle is not None else -1
        if self._fd < 0:
            self.staging = _staging(self.path)
            new = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._fd = os.open(self.staging, new, 0o644)
        head = encode_header(self.layout)
        self.offsets, position = {}, len(head)
        for name, meta in self.layout.items():
            self.offsets[name] = position
            position += meta.nbytes
        self._total, self._left = position, position - len(head)
        self._lock = threading.Lock()
        try:
            os.ftruncate(self._fd, position)
            self._pwrite(memoryview(head), 0)
        except OSError:
            self.abort()
            raise

    def write(self, name: str, start: int, values: Array) -> None:
        position, view = self._placed(name, start, values)
        self._put(view, position)
        with self._lock:
            self._left -= len(view)

    def _put(self, view: memoryview, position: int) -> None:
        self._pwrite(view, position)

    def write_all(self, arrays: Mapping[str, Array]) -> None:
        for name, meta in self.layout.items():
            self.write(name, 0, np.ascontiguousarray(arrays[name], meta.numpy).reshape(-1))

    def commit(self, *, durable: bool = True) -> None:
        """Make the file appear under its name, whole; with `durable`, past a power cut too."""
        if self._left != 0:
            raise ValueError(f"{self.path.name} is written wrongly: {self._left} bytes off")
        if durable:
            # The size is metadata that fdatasync keeps; the time of the last change is not needed.
            os.fdatasync(self._fd)
        os.replace(self.staging, self.path)
        self.found = os.fstat(self._fd)
        os.close(self._fd)
        self._fd = -1
        if durable:
            sync_folder(self.path.parent)
            sync_folder(self.path.parent.parent)

    def _placed(self, name: str, start: int, values: Array) -> tuple[int, memoryview]:
        """Where in the file a block goes, and its bytes."""
        meta = self.layout[name]
        if values.dtype != meta.numpy or start < 0 or start + values.size > meta.size:
            raise ValueError(f"block {start}+{values.size} ({values.dtype}) does not fit {name!r}")
        view = np.ascontiguousarray(values).view(np.uint8).data
        return self.offsets[name] + start * meta.numpy.itemsize, view

    def _pwrite(self, view: memoryview, position: int) -> None:
        done = 0
        while done < len(view):
            done += os.pwrite(self._fd, view[done:], position + done)

    def abort(self) -> None:
        """Forget what was written; harmless after `commit()`."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self.staging.unlink(missing_ok=True)


def _staging(path: Path) -> Path:
    """The name that the bucket's listings leave out, as for its own unfinished files."""
    return path.with_name(f"{path.name}#{secrets.randbits(48)}")


def _reopened(spare: Path, name: Path) -> int:
    """`spare` under its new `name`, if it is a file that only we can have written; else -1.

    Who may write into the folder could have put anything there: a link to one of our other files,
    or a file that has a second name somewhere. And who maps the file holds a lock on it.
    """
    with contextlib.suppress(OSError):
        os.rename(spare, name)
        fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            found = os.fstat(fd)
            if only_ours(found) and found.st_nlink == 1:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
        os.close(fd)
        os.unlink(name)
    return -1


def only_ours(found: os.stat_result) -> bool:
    """Whether this is a plain file of our own that nobody else may write to."""
    others = stat.S_IWGRP | stat.S_IWOTH
    own = found.st_uid == os.geteuid() and not found.st_mode & others
    return own and stat.S_ISREG(found.st_mode)


def save_model(
    path: str | os.PathLike[str], arrays: Mapping[str, Array], *, durable: bool = True
) -> None:
    """Write `arrays` as one body that appears whole or not at all."""
    writer = ModelWriter(path, layout_of(arrays))
    try:
        writer.write_all(arrays)
        writer.commit(durable=durable)
    finally:
        writer.abort()
