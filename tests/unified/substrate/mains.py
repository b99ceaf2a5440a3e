"""What the actors of these tests do: each is called with the path of a file."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path


def returns(argument: bytes) -> None:
    _say(argument, str(os.getpid()))


def raises(argument: bytes) -> None:
    raise ValueError("this actor fails")


def exits(argument: bytes) -> None:
    sys.exit(3)


def waits(argument: bytes) -> None:
    """For ever. A thread notices that it was killed only in Python code."""
    _say(argument, str(os.getpid()))
    while True:
        threading.Event().wait(0.02)


def hangs(argument: bytes) -> None:
    """Deaf to everything that can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _say(argument, str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)


def says_environment(argument: bytes) -> None:
    print("printed by the actor")
    _say(argument, os.environ.get("COLOUR", ""))


def has_children(argument: bytes) -> None:
    """One in its own session, so that no signal to a group reaches it."""
    children = [
        subprocess.Popen(["sleep", "1000"], start_new_session=apart) for apart in (False, True)
    ]
    _say(argument, " ".join(str(child.pid) for child in children))
    threading.Event().wait()


def _say(argument: bytes, text: str) -> None:
    path = Path(argument.decode())
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)
