"""From the `kill -9` of one rank to the survivors' next step: how long, for each system.

The same small training loop everywhere (`elastic/loop.py`: gloo on the CPU, one thread a rank).
Ranks write a line into a pipe as they complete a step. When all of them run together, one is killed
at a moment of its own choosing; measured is the time until the last of those that should go on has
completed a step in which the dead one is not waited for.
"""

import json
import math
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from processes import Cell
from systems import free_port, python_with

HERE = Path(__file__).parent.resolve()
VENV = Path("out/torchft-venv").resolve()
TORCHFT = "torchft-nightly==2026.10.26"
CELL = "FOLKMOOT_BENCH_CELL"
FOLKMOOT_RANK = HERE / "elastic/folkmoot_rank.py"
RANKS = 4
START = 300.0  # seconds until all ranks run together, importing torch included
LIMIT = 60.0  # seconds after a kill; a system that has not gone on by then is reported as such
CHECK = 1.0  # seconds without a step after which we look whether somebody ended
TOGETHER = 20  # steps of every rank with all the others before one is killed
PHASES = 2.0  # seconds in which a kill comes then: anywhere between two heartbeats


class NotRecovered(Exception):
    """The survivors did not go on; the text says what was seen."""


@dataclass(frozen=True)
class Step:
    """A line of a rank: it completed a step (or, in `what`, something else happened to it)."""

    what: str
    at: float
    pid: int
    rank: int
    members: int
    attempt: int


@dataclass
class Trial:
    """The processes of one kill, and the pipe they report to."""

    home: Path
    name: str
    ranks: int
    _left: bytes = b""
    _pipe: int = -1
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def open(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        path = self.home / f"{self.name}.pipe"
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        # For reading and writing: it neither blocks here nor ends when the last rank is gone.
        self._pipe = os.open(path, os.O_RDWR)

    def run(self, *command: object, **environment: str) -> None:
        env = os.environ | {
            CELL: self.name,
            "BENCH_PIPE": str(self.home / f"{self.name}.pipe"),
            "OMP_NUM_THREADS": "1",
            **environment,
        }
        with (self.home / f"{self.name}.log").open("ab") as log:
            words = [str(word) for word in command]
            process = subprocess.Popen(words, env=env, stdout=log, stderr=log, cwd=self.home)
        self.processes.append(process)

    def steps(self, until: float) -> Iterator[Step]:
        """What the ranks report; `NotRecovered` when the time is up, or one more of them ended."""
        while True:
            quiet = not select.select([self._pipe], [], [], CHECK)[0]
            if quiet or time.monotonic() > until:
                self._check(until)
                continue
            lines = (self._left + os.read(self._pipe, 1 << 16)).split(b"\n")
            self._left = lines.pop()
            for line in lines:
                what, at, *numbers = line.decode().split()
                yield Step(what, float(at), *map(int, numbers))

    def _check(self, until: float) -> None:
        log = self.home / f"{self.name}.log"
        for process in self.processes:
            if process.poll() not in (None, 0, -signal.SIGKILL):
                raise NotRecovered(f"a process ended with {process.returncode}; see {log}")
        if time.monotonic() > until:
            raise NotRecovered(f"it took too long; see {log}")

    def close(self) -> None:
        Cell(CELL, self.name).kill()
        for process in self.processes:
            process.wait()
        os.close(self._pipe)
        (self.home / f"{self.name}.pipe").unlink()


@dataclass(frozen=True)
class System:
    """How a system is started, and when it counts as going on after a death."""

    name: str
    settings: str
    start: Callable[[Trial], None]
    restarts: bool = False
    """All ranks are started again, the dead one too; otherwise the survivors go on without it."""
    kills_itself: bool = False
    """The victim is chosen by what it has just done, and says so before it dies."""


@contextmanager
def trial(home: Path, name: str, ranks: int = RANKS) -> Iterator[Trial]:
    running = Trial(home, name, ranks)
    running.open()
    try:
        yield running
    finally:
        running.close()


def measure(system: System, home: Path, number: int, ranks: int = RANKS) -> float:
    """Seconds from the kill to the last survivor's first step after it."""
    name = f"{system.name.replace(' ', '-').replace(',', '')}-{number}"
    with trial(home, name, ranks) as running:
        system.start(running)
        dead = kill_one(running, system, random.Random(number))
        went_on: dict[int, float] = {}
        expected = ranks if system.restarts else ranks - 1
        for step in running.steps(time.monotonic() + LIMIT):
            without = step.attempt > 0 if system.restarts else step.members == ranks - 1
            if step.what == "step" and step.at > dead.at and without:
                went_on.setdefault(step.rank, step.at)
            if len(went_on) == expected:
                return max(went_on.values()) - dead.at
    raise AssertionError("steps() ends only by its time")


def kill_one(running: Trial, system: System, rng: random.Random) -> Step:
    """Wait until all run together, then kill a rank; when that was and who it was."""
    together = dict.fromkeys(range(running.ranks), 0)
    victim, later, since = rng.randrange(running.ranks), rng.uniform(0, PHASES), math.inf
    for step in running.steps(time.monotonic() + START):
        if step.what == "dies":
            return step
        together[step.rank] += step.members == running.ranks
        if since == math.inf and min(together.values()) >= TOGETHER:
            since = step.at
        if step.rank == victim and step.at > since + later and not system.kills_itself:
            now = time.monotonic()
            os.kill(step.pid, signal.SIGKILL)
            return Step("dies", now, step.pid, step.rank, step.members, step.attempt)
    raise AssertionError("steps() ends only by its time")


def folkmoot(heartbeat: float, timeout: float, winner: bool = False) -> Callable[[Trial], None]:
    """A store in a process of its own, and ranks with nobody over them who would see one die."""

    def start(running: Trial) -> None:
        port = free_port()
        running.run(sys.executable, "-m", "folkmoot", "store", "serve", "--port", port)
        milliseconds = {"heartbeat_interval": heartbeat, "heartbeat_timeout": timeout}
        rules = {name: round(1000 * seconds) for name, seconds in milliseconds.items()}
        env = {
            "FOLKMOOT_STORE": f"tcp://127.0.0.1:{port}",
            "FOLKMOOT_RULES": json.dumps(rules),
            "WORLD_SIZE": str(running.ranks),
        }
        if winner:
            env["BENCH_WINNER_DIES_FROM"] = str(TOGETHER)
            env["BENCH_WINNER_DIES_AFTER"] = str(random.Random(running.name).uniform(0, PHASES))
        for rank in range(running.ranks):
            running.run(sys.executable, FOLKMOOT_RANK, **env, RANK=str(rank))

    return start


def folkmoot_launcher(heartbeat: float, timeout: float) -> Callable[[Trial], None]:
    """The same ranks as children of the launcher, which tells the others of a death."""

    def start(running: Trial) -> None:
        running.run(
            *(sys.executable, "-m", "folkmoot", "elastic", "run", "--ranks", running.ranks),
            *("--heartbeat-interval", round(1000 * heartbeat)),
            *("--heartbeat-timeout", round(1000 * timeout), FOLKMOOT_RANK),
        )

    return start


def torchrun(running: Trial) -> None:
    """One agent, which sees its worker die; then all workers are ended and started again.

    The variable gives every attempt a store of its own. With the default, workers of the second
    attempt read addresses of the first, and none of them gets to a collective.
    """
    running.run(
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--max-restarts=1"),
        *(f"--nproc-per-node={running.ranks}", "--rdzv-backend=c10d", f"--rdzv-id={running.name}"),
        *(f"--rdzv-endpoint=127.0.0.1:{free_port()}", HERE / "elastic/torchrun_rank.py"),
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
    )


def torchft(heartbeat: float, timeout: float, join: float) -> Callable[[Trial], None]:
    """A lighthouse, and replica groups of one process each, whose manager sends its heartbeats."""

    def start(running: Trial) -> None:
        python, port = torchft_python(), free_port()
        running.run(
            *(python.parent / "torchft_lighthouse", "--min_replicas", 1),
            *("--bind", f"[::]:{port}", "--heartbeat_timeout_ms", round(1000 * timeout)),
            *("--join_timeout_ms", round(1000 * join)),
        )
        script = HERE / "elastic/torchft_rank.py"
        for rank in range(running.ranks):
            running.run(python, script, rank, f"http://127.0.0.1:{port}", heartbeat)

    return start


def torchft_python() -> Path:
    same = (f"{name}=={version(name).split('+')[0]}" for name in ("torch", "numpy"))
    return python_with(VENV, TORCHFT, *same)
