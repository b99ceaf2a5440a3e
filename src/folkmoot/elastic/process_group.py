"""torch's default process group, formed among some ranks, and cut off when one of them is gone.

A collective that waits for a rank that hangs cannot be called back: gloo's `abort` does not end it,
and its timeout must be long enough for honest slowness. But it ends at once when its connections
do. So we remember the sockets that came into being with the group, and `cut` shuts them down.
"""

import contextlib
import os
import socket
import stat
from datetime import timedelta
from typing import Any

import torch.distributed as dist


class ProcessGroup:
    """The default group of this process, from now until `dissolve`."""

    def __init__(self, store: Any, index: int, size: int, forming: float, timeout: float) -> None:
        """Raises RuntimeError if the others do not come within `forming` seconds.

        A collective may take `timeout` seconds. `store` must hold nothing of another group.
        """
        before = _sockets()
        try:
            dist.init_process_group(
                "gloo",
                store=store,
                rank=index,
                world_size=size,
                timeout=timedelta(seconds=forming),
            )
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout))
        except BaseException:
            _destroy()
            raise
        self._sockets = _sockets() - before

    def cut(self) -> None:
        """End what waits in a collective, here and at the others. From any thread."""
        for descriptor, inode in self._sockets:
            with contextlib.suppress(OSError):  # it is closed, or no longer connected
                if os.fstat(descriptor).st_ino != inode:
                    continue
                with socket.socket(fileno=os.dup(descriptor)) as same:
                    # gloo ends the process if the socket fails at which it listens.
                    if not same.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        same.shutdown(socket.SHUT_RDWR)

    def dissolve(self) -> None:
        self.cut()
        _destroy()


def is_lost_member(error: BaseException) -> bool:
    """Whether an error of a collective says that another rank is gone, or has cut us off."""
    if isinstance(error, dist.DistError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("gloo" in text or "pair closure" in text)


def _destroy() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _sockets() -> set[tuple[int, int]]:
    """This process's sockets, each with the number that tells it from a later one."""
    found = set()
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found.add((int(name), status.st_ino))
    return found
