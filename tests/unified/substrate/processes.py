"""Waiting for processes and files of others, without asking in a loop where the system tells."""

import os
import select
import signal
import time
from pathlib import Path

# Seconds, for what takes one or two on a machine with nothing else to do.
PATIENCE = 200.0


def wait_gone(pid: int) -> None:
    """Until a process has ended, whoever is its parent."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([pidfd], [], [], PATIENCE)
        assert ready, f"process {pid} still runs"
    finally:
        os.close(pidfd)


def stop(child: int) -> None:
    """Stop a process that this one started; its threads run on until its main thread has heard."""
    os.kill(child, signal.SIGSTOP)
    os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOWAIT)


def wait_for_file(path: Path) -> str:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} was never written"
        time.sleep(0.005)
    return path.read_text()
