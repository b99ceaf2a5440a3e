"""Waiting for processes and files of others, without asking in a loop where the system tells."""

import os
import select
import time
from pathlib import Path

PATIENCE = 60.0


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


def wait_for_file(path: Path) -> str:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} was never written"
        time.sleep(0.005)
    return path.read_text()
