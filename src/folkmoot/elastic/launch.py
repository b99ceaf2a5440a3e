"""Start the ranks of a job on this machine, watch them, and start those again that die.

Ranks get torchrun's environment variables, so a script for torchrun runs unchanged. What happens
when one dies depends on the script:

- Ranks that follow the global iteration (they have come to the store) are started again one by one:
  the launcher tells the others of the death at once, and they go on meanwhile.
- Otherwise nobody could go on: all ranks of all nodes are started again, in a new attempt with a
  new MASTER_PORT, as torchrun does. Attempts are counted in the store, so that the launchers of
  several nodes agree.
"""

import os
import queue
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from folkmoot.authority.store.kv import StoreError, StoreGone
from folkmoot.authority.store.kv.open import open_store
from folkmoot.core.iteration import keys
from folkmoot.elastic import settings
from folkmoot.elastic.address import own_address
from folkmoot.elastic.child import Child
from folkmoot.elastic.death_notice import starts, write_death_notice

# Seconds that ranks have to end after Ctrl-C, and again after SIGTERM.
GRACE = 10.0
# Seconds between two looks of a launcher whether that of another node began a new attempt.
LOOK = 0.5
# Seconds that node 0 may come later than the others.
START = 300.0
ATTEMPT, MASTER = "launch_attempt", "launch_master_{}"


class RankJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to start. `ranks` is for each node."""

    command: tuple[str, ...]
    store: str
    name: str
    ranks: int
    nodes: int = 1
    node_rank: int = 0
    max_restarts: int = 3
    rules: dict[str, int | str] = {}
    log: Path | None = None

    @property
    def world(self) -> int:
        return self.ranks * self.nodes

    @property
    def local(self) -> range:
        first = self.node_rank * self.ranks
        return range(first, first + self.ranks)


class Launcher:
    """The ranks of one node, until all have ended."""

    def __init__(self, job: RankJob, say: Callable[[str], None]) -> None:
        self.job, self._say = job, say
        self._ended: queue.SimpleQueue[Child] = queue.SimpleQueue()
        self._children: dict[int, Child] = {}
        self._before: dict[int, int] = {}  # a rank's starts before its present process
        self._restarts = dict.fromkeys(job.local, 0)
        self._codes: dict[int, int] = {}  # of ranks that are not started again
        self._attempt = 0
        self._master = ("", 0)

    def run(self) -> int:
        """The exit code: 0 when every rank has ended well, else that of the first that did not.

        Ctrl-C (and SIGTERM, where it is made to raise KeyboardInterrupt) is handed on to the ranks.
        """
        self._store = open_store(self.job.store, self.job.name)
        try:
            self._begin_attempt(int(self._store.get(ATTEMPT) or 0))
            while len(self._codes) < self.job.ranks:
                self._wait()
        except KeyboardInterrupt:
            self._say("interrupted; the ranks are asked to end")
            self._end_all(signal.SIGINT)
            return 128 + signal.SIGINT
        finally:
            self._end_all(signal.SIGTERM)
            self._store.close()
        return next((code for code in self._codes.values() if code), 0)

    def _wait(self) -> None:
        """Until a rank of ours ends, or another node begins a new attempt."""
        try:
            child = self._ended.get(timeout=LOOK if self.job.nodes > 1 else None)
        except queue.Empty:
            pass
        else:
            if self._children.get(child.rank) is child:
                self._take_end(child)
        if self.job.nodes > 1:
            self._follow_attempt()

    def _take_end(self, child: Child) -> None:
        if child.code == 0:
            self._codes[child.rank] = 0
        elif self._is_elastic(child):
            self._start_again(child)
        else:
            self._attempt_again(child)

    def _is_elastic(self, child: Child) -> bool:
        """Write the death notice; whether the job's ranks follow the global iteration."""
        rank, others = child.rank, [keys.heartbeat(n) for n in range(self.job.world)]
        try:
            told = write_death_notice(self._store, rank, self._before[rank])
            return told or any(self._store.get_many(others))
        except StoreGone as gone:
            raise StoreGone(f"rank {rank} {child.how}, and the job ends: {gone}") from gone

    def _start_again(self, child: Child) -> None:
        rank, most = child.rank, self.job.max_restarts
        if self._restarts[rank] >= most:
            self._say(f"rank {rank} {child.how}; it is given up after {most} restarts")
            self._codes[rank] = child.exit_code
            return
        self._restarts[rank] += 1
        self._say(f"rank {rank} {child.how}; started again ({self._restarts[rank]} of {most})")
        self._start(rank)

    def _attempt_again(self, child: Child) -> None:
        """Nobody can go on without this rank: all nodes start anew, once for each attempt."""
        after, most = self._attempt + 1, self.job.max_restarts
        before = b"%d" % self._attempt if self._attempt else b""
        self._store.compare_set(ATTEMPT, before, b"%d" % after)
        if after > most:
            self._say(f"rank {child.rank} {child.how}; the job is given up after {most} restarts")
            self._codes = dict.fromkeys(self.job.local, child.exit_code)
            return
        self._say(f"rank {child.rank} {child.how}; all ranks start again ({after} of {most})")
        self._begin_attempt(after)

    def _follow_attempt(self) -> None:
        newest = int(self._store.get(ATTEMPT) or 0)
        if newest > self.job.max_restarts:
            self._say("another node has given the job up")
            self._codes = dict.fromkeys(self.job.local, 1)
        elif newest > self._attempt:
            self._say(f"a rank of another node died; all ranks start again ({newest})")
            self._begin_attempt(newest)

    def _begin_attempt(self, number: int) -> None:
        self._end_all(signal.SIGTERM)
        self._attempt, self._codes = number, {}
        self._restarts = dict.fromkeys(self.job.local, number)
        self._master = self._find_master()
        for rank in self.job.local:
            self._start(rank)

    def _find_master(self) -> tuple[str, int]:
        """Where a script's own process group meets: a new port of node 0 for each attempt."""
        key = MASTER.format(self._attempt)
        if self.job.node_rank == 0:
            host, port = own_address(self.job.store), _free_port()
            self._store.set(key, f"{host} {port}".encode())
            return host, port
        deadline, said = time.monotonic() + START, None
        while said is None and time.monotonic() < deadline:
            said = self._store.wait(key, 1.0)
        if said is None:
            raise StoreError(
                f"node 0 of job {self.job.name} has not started within {START:g} s: start it with"
                " the same --store and --job, and --node-rank 0"
            )
        host, _, text = said.decode().partition(" ")
        return host, int(text)

    def _start(self, rank: int) -> None:
        self._before[rank] = starts(self._store, rank)
        command, environment = self.job.command, self._environment(rank)
        self._children[rank] = Child(rank, command, environment, self._ended.put)

    def _environment(self, rank: int) -> dict[str, str]:
        job, (host, port) = self.job, self._master
        local = rank - job.local.start
        said = {
            "RANK": rank,
            "LOCAL_RANK": local,
            "ROLE_RANK": rank,
            "GROUP_RANK": job.node_rank,
            "ROLE_NAME": "default",
            "WORLD_SIZE": job.world,
            "LOCAL_WORLD_SIZE": job.ranks,
            "ROLE_WORLD_SIZE": job.world,
            "GROUP_WORLD_SIZE": job.nodes,
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
            "TORCHELASTIC_RESTART_COUNT": self._restarts[rank],
            "TORCHELASTIC_MAX_RESTARTS": job.max_restarts,
            "TORCHELASTIC_RUN_ID": job.name,
            "TORCHELASTIC_USE_AGENT_STORE": False,
            "PYTHONUNBUFFERED": 1,
            settings.STORE: job.store,
            settings.JOB: job.name,
            settings.RULES: msgspec.json.encode(job.rules).decode(),
            **({settings.LOG: job.log} if job.log else {}),
        }
        # As torchrun does: ranks that share a machine must not each take all of its cores.
        threads = {"OMP_NUM_THREADS": "1"} if job.ranks > 1 else {}
        return {**threads, **os.environ, **{name: str(value) for name, value in said.items()}}

    def _end_all(self, number: signal.Signals) -> None:
        """Ask all ranks to end, then ask again, then end them."""
        for sign in (number, signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + GRACE
            for child in self._children.values():
                child.signal(sign)
            if all(child.wait(deadline - time.monotonic()) for child in self._children.values()):
                break
        self._children.clear()


def python(script: str, arguments: tuple[str, ...], module: bool = False) -> tuple[str, ...]:
    """The command that runs a script, or a module, as torchrun would."""
    return (sys.executable, *(("-m",) if module else ()), script, *arguments)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
