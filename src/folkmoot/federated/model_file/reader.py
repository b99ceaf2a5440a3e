"""A model in a local file, read in blocks: memory is one block whatever the size of the model."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from folkmoot.federated.model_file.layout import (
    BLOCK,
    Array,
    BadModel,
    array_views,
    decode_header,
    header_length,
)

READ = 1 << 20
#: Elements that are judged at once: two threads at it meet less often than with smaller blocks.
JUDGED = 8 * BLOCK


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
        return array_views(data, self.layout, self.offsets)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HashingModelFile(ModelFile):
    """A model whose `blocks()` also hash the body as they go: one pass for check and digest."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._hash: Any = None

    def blocks(self, size: int = JUDGED) -> Iterator[tuple[str, int, Array]]:
        hasher = blake3(self.head)
        for name, start, values in super().blocks(size):
            hasher.update(values.view(np.uint8).data)
            yield name, start, values
        self._hash = hasher

    def digest(self) -> str:
        """BLAKE3 of the whole body, from the pass that was made, or from a pass of its own."""
        return self._hash.hexdigest() if self._hash is not None else digest_of(self.path)


def digest_of(path: Path) -> str:
    """BLAKE3 of a file, read through one small buffer."""
    hasher, buffer = blake3(), bytearray(READ)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while got := file.readinto(buffer):
            hasher.update(view[:got])
    return hasher.hexdigest()
