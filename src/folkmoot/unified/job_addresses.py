"""Where this process is, and where its master is, as far as it was told."""

import threading
from pathlib import Path

#: The address at which other machines reach this one; "" where all is on one machine.
own_host = ""
LOOPBACK = "127.0.0.1"
_master = ""
_lock = threading.Lock()


def host() -> str:
    """Where those of the job reach what listens here."""
    return own_host or LOOPBACK


def boot_id() -> str:
    """Names the machine, and its start."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "-" * 36  # not Linux: a restart is not noticed


def announce(master: str) -> None:
    """The master is reached there from now on."""
    global _master
    with _lock:
        _master = master


def announced() -> str:
    with _lock:
        return _master
