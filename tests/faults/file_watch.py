"""Wait until a file in one of some folders is written to: Linux's inotify, for logs that grow."""

import ctypes
import os
import select
import weakref
from pathlib import Path

IN_MODIFY = 0x2
_libc = ctypes.CDLL(None, use_errno=True)


class FileWatch:
    def __init__(self) -> None:
        self._files = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        for fd in (self._files, self._woken):
            weakref.finalize(self, os.close, fd)  # a thread may wake it to the last

    def add(self, folder: Path) -> None:
        """Watch the files in `folder` from now on."""
        _checked(_libc.inotify_add_watch(self._files, os.fsencode(folder), IN_MODIFY))

    def wake(self) -> None:
        os.eventfd_write(self._woken, 1)

    def wait(self, seconds: float) -> None:
        """Until something was written since the last call, or `wake`; at most so many seconds."""
        heard, _, _ = select.select([self._files, self._woken], [], [], max(seconds, 0))
        for fd in heard:
            os.read(fd, 65536)


def _checked(answer: int) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer
