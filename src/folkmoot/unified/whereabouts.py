"""Where this process is, and where its master is, as far as it was told."""

import threading

#: The address at which other machines reach this one; "" where all is on one machine.
own_host = ""
_master = ""
_lock = threading.Lock()


def announce(master: str) -> None:
    """The master is reached there from now on."""
    global _master
    with _lock:
        _master = master


def announced() -> str:
    with _lock:
        return _master
