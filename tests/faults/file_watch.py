"""Rings when a file in one of some folders was written to: Linux's inotify, for logs that grow."""

import ctypes
import os
import select
import weakref
from pathlib import Path

IN_MODIFY = 0x2
_libc = ctypes.CDLL(None, use_errno=True)


class Bell:
    def __init__(self) -> None:
        self._files = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._rung = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        for fd in (self._files, self._rung):
            weakref.finalize(self, os.close, fd)  # also a thread may still ring

    def listen(self, folder: Path) -> None:
        """Ring from now on when something is written to a file in `folder`."""
        _checked(_libc.inotify_add_watch(self._files, os.fsencode(folder), IN_MODIFY))

    def ring(self) -> None:
        os.eventfd_write(self._rung, 1)

    def wait(self, seconds: float) -> None:
        """Until it rings, or rang since the last call; but no longer than so many seconds."""
        heard, _, _ = select.select([self._files, self._rung], [], [], max(seconds, 0))
        for fd in heard:
            os.read(fd, 65536)


def _checked(answer: int) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer
