"""A model that is hashed while it is written: nobody has to read it again to know its digest.

The file is written in pieces that begin at multiples of their length, so that BLAKE3 gets whole
subtrees and the system keeps the file in pages as large as a piece. A block that covers a piece
goes out as it is; smaller ones are collected.

Blocks may come from several threads, nearly in order. A piece is hashed when all before it were,
while the cache still has it. One that has to wait too long is read back when its turn comes, so
memory is a few pieces whatever the size of the model.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from folkmoot.federated.model_file.layout import Array, Layout
from folkmoot.federated.model_file.reader import page_aligned
from folkmoot.federated.model_file.writer import ModelWriter

#: Fits a core's second-level cache: a piece is hashed where the write left it.
PIECE = 1 << 18
#: For a file that others map: the largest page there is, which costs them one fault and no walks.
MAPPED_PIECE = 2 << 20
#: Full pieces that may wait in memory for the ones before them.
WAITING = 4


#: Buffers that no piece uses now: fresh memory from the system costs as much as a copy.
_free: deque[Array] = deque(maxlen=WAITING)


def _buffer(size: int) -> Array:
    if size == MAPPED_PIECE:
        with contextlib.suppress(IndexError):
            return _free.pop()
    return page_aligned(size)


class _Piece:
    """A piece that is being collected."""

    def __init__(self, size: int) -> None:
        self.body, self.left = _buffer(size), size


class HashingWriter(ModelWriter):
    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: Layout,
        recycle: Path | None = None,
        *,
        mapped: bool = False,
    ) -> None:
        """`mapped` is for a file that others will map once it is durable.

        The disk then gets each piece at once: `commit` has little left to wait for.
        """
        self._eager, self._piece = mapped, MAPPED_PIECE if mapped else PIECE
        self._begun: dict[int, _Piece] = {}
        #: Written, and not yet hashed; None is to be read back.
        self._written: dict[int, Array | None] = {}
        self._hasher, self._hashed = blake3(), 0
        self._hashing = threading.Lock()
        super().__init__(path, layout, recycle)  # which puts the header

    def digest(self) -> bytes:
        """BLAKE3 of the whole body, once all of it is written."""
        self._hash_on(wait=True)
        if self._left != 0 or self._hashed * self._piece < self._total:
            raise ValueError(f"{self.path.name} has no digest yet: {self._left} bytes are missing")
        digest: bytes = self._hasher.digest()
        return digest

    def _put(self, view: memoryview, position: int) -> None:
        done = 0
        while done < len(view):
            index, inside = divmod(position + done, self._piece)
            size = self._size(index)
            part = view[done : done + size - inside]
            done += len(part)
            if len(part) == size and index == self._hashed:
                self._send(index, part)
                self._hash(part)
            else:
                self._add(index, size, inside, part)

    def _add(self, index: int, size: int, inside: int, part: memoryview) -> None:
        with self._lock:
            piece = self._begun.get(index)
            if piece is None:
                piece = self._begun[index] = _Piece(size)
        piece.body[inside : inside + len(part)] = np.frombuffer(part, np.uint8)
        with self._lock:
            piece.left -= len(part)
            if piece.left > 0:
                return
            del self._begun[index]
        self._send(index, piece.body.data)
        # What is too far ahead is not kept, but read back.
        kept = index == self._hashed or len(self._written) < WAITING
        self._written[index] = piece.body if kept else None
        self._hash_on()

    def _send(self, index: int, data: memoryview) -> None:
        self._pwrite(data, index * self._piece)
        if self._eager:
            start_writing(self._fd, index * self._piece, len(data))

    def _hash_on(self, *, wait: bool = False) -> None:
        """Hash every piece whose turn has come, unless another thread is at it."""
        if not self._hashing.acquire(blocking=wait):
            return
        try:
            while self._hashed in self._written:
                data = self._written.pop(self._hashed)
                if data is None:
                    data = self._read_back(self._hashed)
                self._hash(data.data)
                if len(data) == MAPPED_PIECE:
                    _free.append(data)
        finally:
            self._hashing.release()

    def _hash(self, data: memoryview) -> None:
        self._hasher.update(data)
        self._hashed += 1

    def _read_back(self, index: int) -> Array:
        data, done = _buffer(self._size(index)), 0
        while done < len(data):
            got = os.preadv(self._fd, [data[done:].data], index * self._piece + done)
            if got == 0:
                raise OSError(f"{self.staging} was cut off while it was written")
            done += got
        return data

    def _size(self, index: int) -> int:
        return min(self._piece, self._total - index * self._piece)


def _sync_file_range() -> Any:
    with contextlib.suppress(OSError, AttributeError):  # Linux alone has it; it only saves time
        function = ctypes.CDLL(None).sync_file_range
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
        return function
    return None


_START_ONLY = 2  # SYNC_FILE_RANGE_WRITE
_range = _sync_file_range()


def start_writing(fd: int, position: int, length: int) -> None:
    """Let the disk begin with these bytes, without waiting for it. Promises nothing."""
    if _range is not None:
        _range(fd, position, length, _START_ONLY)
