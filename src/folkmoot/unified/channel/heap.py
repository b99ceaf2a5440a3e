"""Large records between processes of one machine: written once into a file, then mapped.

Every producer's connection has a heap file of its own in the channel's folder, so it needs to ask
nobody where to write. Those who read map just the record: the memory they see is the file's, until
they change it, and then only they see the change. A region is written again only when its record
is over and no living process maps it any more.

These are files, not `/dev/shm`: they must outlive every process, and then they are found where the
channel is, and go with its folder. Their pages are memory all the same; the disk sees what stays
there for long.
"""

import mmap
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from folkmoot.unified.channel.regions import Regions, pages

Buffer = bytes | bytearray | memoryview
RESERVE = 16 * 1024 * 1024
MAP_NORESERVE = 0x4000  # Linux's: a heap may be larger than memory, its records are not


class Heap:
    """The producer's side. The file is made when something is written."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.regions = Regions(size)
        self._fd = -1
        self._reserved = 0
        self._view = memoryview(b"")

    def write(self, offset: int, pieces: Sequence[Buffer]) -> None:
        end = offset + sum(map(len, pieces))
        if end > self._reserved:
            self._reserve(end)
        for piece in pieces:
            self._view[offset : offset + len(piece)] = piece
            offset += len(piece)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._view[offset : offset + length])

    def close(self) -> None:
        if self._fd >= 0:
            self._view.release()
            os.close(self._fd)

    def _reserve(self, end: int) -> None:
        """Have the disk's room beforehand: if it is missing, that is an error and no signal."""
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.ftruncate(self._fd, self.regions.size)
            self._view = memoryview(mmap.mmap(self._fd, self.regions.size))
        end = min(-(-end // RESERVE) * RESERVE, self.regions.size)
        os.posix_fallocate(self._fd, self._reserved, end - self._reserved)
        self._reserved = end


class Mapped:
    """A heap file as a consumer sees it, whole: `region` gives parts of it, `forget` ends them."""

    def __init__(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        self._map = mmap.mmap(fd, size, mmap.MAP_PRIVATE | MAP_NORESERVE)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._used: set[int] = set()

    def region(self, offset: int, length: int) -> Any:
        """To look at and, for oneself, to change; None when it is in use already.

        Who is given a record a second time must not see what was changed in the first.
        """
        if offset in self._used:
            return None
        self._used.add(offset)
        return self._bytes[offset : offset + length]

    def look(self, offset: int, length: int) -> memoryview:
        """What lies there now, for those who only read."""
        return self._bytes.data[offset : offset + length]

    def forget(self, offset: int, length: int) -> None:
        """Nothing looks at it: what was changed there is dropped, and the next sees the file's."""
        self._map.madvise(mmap.MADV_DONTNEED, offset, pages(length))
        self._used.discard(offset)


class Maps:
    """The consumer's side: heap files are opened once, and kept open while they have a name."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._fds: dict[str, int] = {}
        self._mapped: dict[str, Mapped] = {}

    def map(self, heap: str, offset: int, length: int) -> tuple[Any, Mapped | None]:
        """A region to look at and, for oneself, to change; and what forgets it, if that must be.

        A mapping for each would cost several system calls.
        """
        fd = self._fd(heap)
        if sys.platform == "linux":  # where pages that were changed can be dropped
            mapped = self._whole(heap)
            if (region := mapped.region(offset, length)) is not None:
                return region, mapped
        return mmap.mmap(fd, length, access=mmap.ACCESS_COPY, offset=offset), None

    def look(self, heap: str, offset: int, length: int) -> memoryview:
        """What lies there now: copy what is to be kept, before the region is let go."""
        if sys.platform == "linux":
            return self._whole(heap).look(offset, length)
        return memoryview(os.pread(self._fd(heap), length, offset))

    def _whole(self, heap: str) -> Mapped:
        fd = self._fd(heap)
        mapped = self._mapped.get(heap)
        if mapped is None:
            mapped = self._mapped[heap] = Mapped(fd)
        return mapped

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
        self._mapped.clear()

    def _fd(self, heap: str) -> int:
        fd = self._fds.get(heap)
        if fd is None:
            self._close_removed()
            fd = self._fds[heap] = os.open(f"{self._folder}/{heap}", os.O_RDONLY | os.O_CLOEXEC)
        return fd

    def _close_removed(self) -> None:
        for heap, fd in list(self._fds.items()):
            if not os.fstat(fd).st_nlink:
                os.close(self._fds.pop(heap))
                self._mapped.pop(heap, None)


def read_region(path: Path, offset: int, length: int) -> bytes:
    """A copy of a region, for those on other machines."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, length, offset)
    finally:
        os.close(fd)
