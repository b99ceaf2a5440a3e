"""A model written block by block into a file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from folkmoot.federated.model_file.file_stat import only_we_can_write
from folkmoot.federated.model_file.layout import Array, Layout, encode_header
from folkmoot.host.files import sync_folder


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
        self._fd = reopened(recycle, self.staging) if recycle is not None else -1
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
            self._put(memoryview(head), 0)
        except OSError:
            self.close()
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

    def open_unnamed(self) -> BinaryIO:
        """What was written, for who may read it before `commit`; nobody writes over it then."""
        # Ours was exclusive to know that nobody reads what we wrote over.
        fcntl.flock(self._fd, fcntl.LOCK_SH)
        file = open(self.staging, "rb", buffering=0)  # noqa: SIM115 - it is the caller's
        fcntl.flock(file, fcntl.LOCK_SH)
        return file

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
            # Where the name of our folder is. File systems with one log have it on the disk by now.
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

    def close(self) -> None:
        """Forget what was written, unless `commit()` was called."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self.staging.unlink(missing_ok=True)


def _staging(path: Path) -> Path:
    """The name that the bucket's listings leave out, as for its own unfinished files."""
    return path.with_name(f"{path.name}#{secrets.randbits(48)}")


def reopened(spare: Path, name: Path) -> int:
    """`spare` under its new `name`, if it is a file that only we can have written; else -1.

    Who may write into the folder could have put anything there: a link to one of our other files,
    or a file that has a second name somewhere. And who maps the file holds a lock on it.
    """
    with contextlib.suppress(OSError):
        os.rename(spare, name)
        fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            found = os.fstat(fd)
            if only_we_can_write(found) and found.st_nlink == 1:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
        os.close(fd)
        os.unlink(name)
    return -1
