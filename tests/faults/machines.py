"""Machines of a test, each a network namespace on one switch, and terminals to type into."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from faults.long_lines import TUN, Switch, running

PATIENCE = 280.0
NAMES = ("server", "one", "two", "three")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Machines:
    def __init__(self, prefix: str, switch: Switch) -> None:
        self.prefix, self.switch = prefix, switch

    def space(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def inside(self, name: str, *words: str) -> None:
        ip("netns", "exec", self.space(name), *words)

    def connect(self, number: int, name: str) -> None:
        device = f"fm{os.getpid()}n{number}"
        self.switch.line(device)
        ip("link", "set", device, "netns", self.space(name), "name", "eth0")
        self.inside(name, "ip", "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            self.inside(name, "ip", "link", "set", link, "up")


def need_namespaces() -> None:
    """Skip where this machine cannot make others."""
    if os.geteuid() or not shutil.which("ip") or not Path(TUN).exists():
        pytest.skip(f"needs root, `ip` and {TUN}")
    if subprocess.run(["ip", "netns", "list"], capture_output=True).returncode:
        pytest.skip("needs network namespaces")


@contextmanager
def machines() -> Iterator[Machines]:
    """On lines of 50 ms, each way, that lose one frame in a hundred."""
    made = Machines(f"fm{os.getpid()}-", Switch(delay=0.05, loss=0.01))
    with ExitStack() as stack:
        for name in NAMES:
            ip("netns", "add", made.space(name))
            stack.callback(ip, "netns", "delete", made.space(name))
        for number, name in enumerate(NAMES, 1):
            made.connect(number, name)
        stack.enter_context(running(made.switch))
        yield made


class Terminal:
    """A terminal of one machine: a folder, a line typed into it, and what it printed."""

    def __init__(self, where: Machines, name: str, folder: Path) -> None:
        self.where, self.name, self.folder = where, name, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.output = folder / "screen.txt"
        self.process: subprocess.Popen[bytes] | None = None

    def type(self, line: str) -> None:
        program, *words = line.split()
        assert program == "folkmoot"
        path = os.pathsep.join(entry for entry in sys.path if entry)
        within = ["ip", "netns", "exec", self.where.space(self.name)]
        with self.output.open("wb") as screen:
            self.process = subprocess.Popen(
                [*within, sys.executable, "-m", "folkmoot", *words],
                cwd=self.folder,
                env=os.environ
                | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
                | {"PYTHONUNBUFFERED": "1"},
                stdout=screen,
                stderr=subprocess.STDOUT,
            )

    def shows(self, words: str) -> str:
        """The first line with these words; waits for it."""
        until = time.monotonic() + PATIENCE
        while True:
            screen = self.output.read_text()
            found = [line for line in screen.splitlines() if words in line]
            if found:
                return found[0]
            assert self.process is not None
            over = self.process.poll() is not None and screen == self.output.read_text()
            over = over or time.monotonic() > until
            assert not over, f"{self.name} never said {words}:\n{screen}"
            time.sleep(0.2)

    def end(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
