"""One advance of W ranks, beside a bare barrier on the same store; store operations of a rank.

Every rank is a process of its own, forked from one that has imported torch, with its own
connections to one TCPStore server, which is a process of its own as well. An advance takes as long
as its slowest rank needs, from calling to returning; ranks advance again at once. They connect one
after the other; the first advance begins when all are there, and all stay until the last is done.
"""

import gc
import multiprocessing
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, Protocol

from torch.distributed import TCPStore

from folkmoot.authority.store.kv.tcp_server import listen

HOST = "127.0.0.1"
PATIENCE = timedelta(seconds=300)
# Advances before those that are measured. A process that was just forked copies the pages that it
# writes to, and Python takes a few calls to make its code quick: the first ten take half as long
# again at the barrier, and twice as long with Folkmoot.
WARM = 20


class Rank(Protocol):
    """One rank of a way to advance together."""

    def advance(self) -> None: ...

    def counts(self) -> Counter[str]:
        """How often it asked the store so far; `heartbeats` are those that come with time."""
        ...


Joining = Callable[[int, str, int, int], AbstractContextManager[Rank]]
"""(the store's port, a name for the run, rank, world): a rank, connected."""


class BareBarrier(AbstractContextManager["BareBarrier"]):
    """The least that a restart does not break: a slot for each rank, and a count of full slots.

    A rank that starts again finds its slot full and does not count twice. Nothing here notices a
    death, agrees on who is in, or fences off somebody who comes late.
    """

    def __init__(self, port: int, run: str, rank: int, world: int) -> None:
        self._store = TCPStore(HOST, port, None, False, PATIENCE, wait_for_workers=False)
        self._run, self._rank, self._world = run, rank, world
        self._iteration = 0

    def advance(self) -> None:
        self._iteration += 1
        here, mine = f"{self._run}/{self._iteration}", f"{self._rank}:1"
        first = self._store.compare_set(f"{here}/slot/{self._rank}", "", mine) == mine.encode()
        if first and self._store.add(f"{here}/count", 1) == self._world:
            self._store.set(f"{here}/ready", "1")
        else:
            self._store.wait([f"{here}/ready"], PATIENCE)

    def counts(self) -> Counter[str]:
        return Counter(iteration=3 * self._iteration)

    def __exit__(self, *raised: object) -> None:
        del self._store


Report = tuple[list[float], Counter[str], float]
"""Of one rank: how long each advance took, what it asked the store for, processor seconds."""


@dataclass(frozen=True)
class Advances:
    """What one round of measuring gave."""

    seconds: list[float]
    """Of the slowest rank, for each advance."""
    requests: float
    """What a rank asks the store for in one advance; the mean over ranks, who take turns."""
    heartbeats: float
    """What a rank asks the store for each second besides."""
    processor: float
    """Processor seconds of a rank in one advance, with its heartbeats."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p90(self) -> float:
        return sorted(self.seconds)[int(0.9 * len(self.seconds))]


def measure(joining: Joining, port: int, run: str, world: int, advances: int) -> Advances:
    """Start the ranks, let them advance together, gather what they saw."""
    context = multiprocessing.get_context("forkserver")
    # Not our own modules: the fork server does not look where this program does.
    context.set_forkserver_preload(["torch.distributed", "folkmoot.elastic"])
    pipes, processes = [], []
    for rank in range(world):
        ours, theirs = context.Pipe()
        asked = (joining, port, run, rank, world, advances, theirs)
        processes.append(context.Process(target=be_rank, args=asked, daemon=True))
        processes[-1].start()
        theirs.close()
        ours.recv()  # that it is connected
        pipes.append(ours)
    for pipe in pipes:
        pipe.send("go on")
    reports: list[Report] = hear_all(pipes)
    hear_all(pipes)  # that they have left
    for process in processes:
        process.join()
    every, counts, processor = zip(*reports, strict=True)
    slowest = [max(seconds) for seconds in zip(*every, strict=True)]
    requests: Counter[str] = sum(counts, Counter())
    heartbeats = requests.pop("heartbeats", 0) / world / sum(every[0])
    share = 1 / world / advances
    return Advances(slowest, requests.total() * share, heartbeats, sum(processor) * share)


def hear_all(pipes: list[Connection]) -> list[Any]:
    """What each rank has to say; then all of them may go on."""
    said = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send("go on")
    return said


def be_rank(
    joining: Joining, port: int, run: str, rank: int, world: int, advances: int, pipe: Connection
) -> None:
    """In a process of its own: join, advance, stay until all have finished."""
    gc.freeze()  # what was imported is no garbage, and looking at it after a fork would copy it
    with joining(port, run, rank, world) as member:
        tell(pipe, "connected")
        for _ in range(WARM):
            member.advance()
        before, processor, seconds = member.counts(), time.process_time(), []
        for _ in range(advances):
            began = time.perf_counter()
            member.advance()
            seconds.append(time.perf_counter() - began)
        tell(pipe, (seconds, member.counts() - before, time.process_time() - processor))
    tell(pipe, "left")


def tell(pipe: Connection, what: object) -> None:
    pipe.send(what)
    pipe.recv()


@contextmanager
def store_server() -> Iterator[int]:
    """A TCPStore in a process of its own; its port."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    yield ours.recv()
    ours.send("stop")
    process.join()


def serve(pipe: Connection) -> None:
    server = listen(HOST, 0)  # serves as long as we have it
    tell(pipe, int(server[1].rpartition(":")[2]))
