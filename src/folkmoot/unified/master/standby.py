"""A standby waits beside a master and takes the job when that one is gone, or hangs.

Gone is told by the system: the journal's lock is free. One that hangs keeps the lock and answers
nobody; then the journal is taken over by force, and the old master is fenced off by the epoch. Of a
master on another machine only the lock tells.
"""

import fcntl
import logging
import os
import threading

from folkmoot.unified.master.home import Home
from folkmoot.unified.master.owner import OwnersLine
from folkmoot.unified.rpc.errors import RpcError

logger = logging.getLogger(__name__)
# Seconds between two looks whether the master answers, and looks that must fail one after another.
LOOK, FAILED_LOOKS = 10.0, 3


def wait_for_turn(home: Home) -> bool:
    """Until the job has no master that answers; whether the journal must be taken by force."""
    free = threading.Event()
    threading.Thread(target=_await_lock, args=(home, free), daemon=True).start()
    failed = 0
    while failed < FAILED_LOOKS:
        if free.wait(LOOK):
            return False
        failed = 0 if _answers(home) else failed + 1
    logger.warning("the master holds the job and does not answer: it is taken over")
    return True


def _await_lock(home: Home, free: threading.Event) -> None:
    path = home.journal.with_name(f"{home.journal.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.close(fd)
    free.set()


def _answers(home: Home) -> bool:
    if not home.master_is_here:
        return True
    try:
        line = OwnersLine(home)
        try:
            line.status()
        finally:
            line.close()
    except (RpcError, OSError):
        return False
    return True
