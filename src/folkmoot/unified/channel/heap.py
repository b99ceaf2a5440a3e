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
from collections.abc import Sequence
from pathlib import Path

from folkmoot.unified.channel.regions import Regions

Buffer = bytes | bytearray | memoryview
RESERVE = 16 * 1024 * 1024


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


class Maps:
    """The consumer's side: heap files are opened once, and kept open while they have a name."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._fds: dict[str, int] = {}

    def map(self, heap: str, offset: int, length: int) -> mmap.mmap:
        """A region to look at and, for oneself, to change. Unmapped when nothing uses it."""
        return mmap.mmap(self._fd(heap), length, access=mmap.ACCESS_COPY, offset=offset)

    def copy(self, heap: str, offset: int, length: int) -> memoryview:
        """What lies there now."""
        copied = bytearray(length)
        if os.preadv(self._fd(heap), [copied], offset) < length:
            raise EOFError(f"{heap} ends before byte {offset + length}")
        return memoryview(copied)

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

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


def read_region(path: Path, offset: int, length: int) -> bytes:
    """A copy of a region, for those on other machines."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, length, offset)
    finally:
        os.close(fd)
