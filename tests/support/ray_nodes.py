"""Further nodes of a Ray cluster on this machine, which can be killed."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Ray gives a node thirty seconds to start, which a busy machine can miss.
TRIES = 3
# Seconds for a node to leave.
LEAVING = 30.0
Node = subprocess.Popen[bytes]


@contextmanager
def node(address: str, **resources: float) -> Iterator[Node]:
    """One more, with resources that the first has not."""
    told = ", ".join(f'"{name}": {amount}' for name, amount in resources.items())
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={address}"]
    started = _start([*command, "--num-cpus=1", f"--resources={{{told}}}", "--block"])
    try:
        yield started
    finally:
        _leave(started)


def _start(command: list[str]) -> Node:
    for _ in range(TRIES):
        started = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
        assert started.stdout
        if any(b"Ray runtime started" in line for line in started.stdout):
            return started
        kill_node(started)
    raise AssertionError("another node of Ray did not start")


def _leave(started: Node) -> None:
    """In order, so that the cluster knows at once and places nothing there any more."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(started.pid, signal.SIGTERM)
        started.wait(LEAVING)
    kill_node(started)


def kill_node(started: Node) -> None:
    """The raylet and all that it started, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()
