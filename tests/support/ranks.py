"""Ranks of an elastic job as real processes to hurt, and the audit of what their logs tell."""

import json
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from folkmoot.core.iteration import Record
from folkmoot.core.iteration import messages as m
from folkmoot.elastic import settings
from folkmoot.host.event_log import LogReader, records_in
from folkmoot.host.processes import Processes

PATIENCE = 120.0
# Quick to notice a death, and patient enough for a machine where many processes start at once.
RULES = {"heartbeat_interval": 400, "heartbeat_timeout": 1_200, "join_timeout": 60_000}
LOOP = """
import sys
from folkmoot.elastic import GlobalIteration, IterationError
try:
    with GlobalIteration(iterations={iterations}, patience={patience}) as it:
        for iteration in it:
            {body}
except IterationError as error:
    sys.exit(f"{{type(error).__name__}}: {{error}}")
print("ended at", it.iteration if it.incarnation and it._state.record else -1)
"""


class Ranks(Processes):
    """Processes `rank-<r>` of one job; each writes its event log to `rank-<r>.jsonl`."""

    def __init__(self, folder: Path, store: str, world: int, job: str, **rules: Any) -> None:
        self.world = world
        environment = {
            settings.STORE: store,
            settings.JOB: job,
            settings.WORLD: str(world),
            settings.LOG: str(folder),
            settings.RULES: json.dumps({**RULES, **rules}),
        }
        super().__init__(folder, environment)
        self._logs = [LogReader(self.log(rank), records_in(m)) for rank in range(world)]
        self.told: list[list[Any]] = [[] for _ in range(world)]

    def log(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.jsonl"

    def run(self, rank: int, script: str, name: str = "", **environment: str) -> None:
        """Start a rank with this script."""
        assigned = [f"{key}={value}" for key, value in {"RANK": rank, **environment}.items()]
        self.start(name or f"rank-{rank}", ["env", *assigned, sys.executable, "-c", script])

    def run_all(self, script: str, until: int = -1) -> None:
        """Start every rank with this script, and wait for an iteration."""
        for rank in range(self.world):
            self.run(rank, script)
        self.until(lambda: self.newest() >= until)

    def all_end_with(self, *sentences: str) -> None:
        """Every rank has ended, and said all of this."""
        for rank in range(self.world):
            assert self[f"rank-{rank}"].wait(PATIENCE) == 1
            for sentence in sentences:
                assert sentence in self.output(f"rank-{rank}")

    def read(self) -> None:
        for told, log in zip(self.told, self._logs, strict=True):
            told += (entry.record for entry in log.new())

    def has_told(self, rank: int) -> bool:
        """Whether the rank has come to the store."""
        self.read()
        return bool(self.told[rank])

    def records(self, rank: int) -> list[Record]:
        """The iterations that a rank took part in."""
        self.read()
        return [told.record for told in self.told[rank] if isinstance(told, m.Advanced)]

    def newest(self) -> int:
        return max((r.iteration for n in range(self.world) for r in self.records(n)), default=-1)

    def until(self, done: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Read logs until something is so; an unexpected end of a process is told."""
        deadline = time.monotonic() + seconds
        while not done():
            self.wait(0.02)  # or until one ends
            ended = [f"{name}: {self.output(name)}" for name in self.failed()]
            assert not ended, "\n".join(ended)
            assert time.monotonic() < deadline, self._where()

    def until_ended(self, seconds: float = PATIENCE) -> None:
        self.until(lambda: all(p.poll() is not None for p in self._all.values()), seconds)

    def let_pass(self, seconds: float) -> None:
        """So much time, in which nobody may end unexpectedly."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end)

    def pause(self, rank: int) -> None:
        self[f"rank-{rank}"].send_signal(signal.SIGSTOP)

    def resume(self, rank: int) -> None:
        self[f"rank-{rank}"].send_signal(signal.SIGCONT)

    def _where(self) -> str:
        outputs = (f"--- {name}\n{self.output(name)}" for name in self._all)
        return f"newest iteration {self.newest()}\n" + "\n".join(outputs)


# A rank that is clearly slower than the others, so that it is the one who decides. It kills itself
# at one of its requests to the store, counted from its start or, of a winner, from its decision:
# before or after that was carried out, or in the middle, when of its operations the first has
# happened, or when it has arrived and begins to wait.
DYING = """
import os, signal, time
from folkmoot.authority.store.kv.open import open_store
from folkmoot.elastic import GlobalIteration

class Dying:
    def __init__(self, store):
        self.store, self.requests, self.cloned = store, 0, False

    def clone(self):  # the first is for the main thread, the second for the heartbeats
        if self.cloned:
            return self.store.clone()
        self.cloned = True
        return self

    def __getattr__(self, name):
        def request(*arguments):
            decides = name == "compare_set_then_set"
            self.requests += bool(self.requests or decides or not {winner})
            if self.requests == {request} and {when!r} == "within" and "compare_set_" in name:
                found = self.store.compare_set(*arguments[:3])
                if {winner} and decides and found != arguments[2]:
                    self.requests = 0  # another has decided: its own decision is to come
                    return found
            if self.requests == {request} and {when!r} == "waiting" and "_and_append" in name:
                self.store.compare_set_and_append(*arguments[:5])
            if self.requests == {request} and {when!r} != "after":
                os.kill(os.getpid(), signal.SIGKILL)
            answer = getattr(self.store, name)(*arguments)
            if self.requests == {request}:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer
        return request

with GlobalIteration(Dying(open_store(os.environ["FOLKMOOT_STORE"]))) as it:
    for iteration in it:
        time.sleep(0.25)
"""


# In iteration 5, which all are in, rank 2 dies. From there on rank 0 sends no proposal before rank
# 1 has one, and rank 1 does not look before rank 2 is back and nobody is silent any more: they
# propose different members, from the same decision, at the same time.
RACING = """
import os, pathlib, signal, time
from folkmoot.authority.store.kv.open import open_store
from folkmoot.elastic import GlobalIteration

folder, rank = pathlib.Path({folder!r}), int(os.environ["RANK"])
died, raced = folder / "died", folder / "raced"

def until(so):
    while not so():
        time.sleep(0.01)

def nobody_is_silent():
    told = it._heartbeat.events
    return told and not told[-1].ranks

class Racing:
    def __init__(self, store):
        self.store, self.cloned = store, False

    def clone(self):  # the first is for the main thread, the second for the heartbeats
        if self.cloned:
            return self.store.clone()
        self.cloned = True
        return self

    def get_many(self, keys):
        if rank == 1 and len(keys) > 3 and died.exists() and not raced.exists():
            until(lambda: (folder / "back").exists() and nobody_is_silent())
        return self.store.get_many(keys)

    def compare_set_then_set(self, key, expected, desired, *wakeups):
        if died.exists() and not raced.exists():
            (folder / f"part-{{rank}}").write_bytes(expected + b"\\n" + desired)
            (folder / f"part-{{rank}}").rename(folder / f"proposal-{{rank}}")
            until(lambda: all((folder / f"proposal-{{r}}").exists() for r in (0, 1)))
        found = self.store.compare_set_then_set(key, expected, desired, *wakeups)
        if died.exists():
            raced.touch()
        return found

    def __getattr__(self, name):
        return getattr(self.store, name)

with GlobalIteration(Racing(open_store(os.environ["FOLKMOOT_STORE"]))) as it:
    for iteration in it:
        if iteration == 5 and not died.exists():
            (folder / f"in-5-{{rank}}").touch()
            if rank == 2:
                until(lambda: all((folder / f"in-5-{{r}}").exists() for r in (0, 1)))
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if (folder / "stop").exists():
            break
        time.sleep(0.01)
"""


def die_at_every_request(ranks: Ranks, requests: range, winner: bool = False) -> None:
    """Rank 1 dies at each of these, and is started again; the others go on."""
    body = "import time; time.sleep(0.005)"
    stop = ranks.folder / "stop"
    for rank in range(ranks.world):
        if rank != 1:
            ranks.run(
                rank,
                loop(10**6, f"import os; {body}\n            if os.path.exists('{stop}'): break"),
            )
    for request in requests:
        for when in ("before", "within", "waiting", "after"):
            ranks.run(1, DYING.format(request=request, when=when, winner=winner))
            code = ranks["rank-1"].wait(PATIENCE)
            assert code == -signal.SIGKILL, ranks.output("rank-1")
            ranks.kill("rank-1")
            before = ranks.newest()
            ranks.until(lambda before=before: ranks.newest() > before)
    stop.touch()
    ranks.until_ended()
    audit(ranks, ranks.newest() + 1)


def endless(patience: float = 5.0) -> str:
    """A script that goes through iterations until it is stopped."""
    return loop(10**6, "import time; time.sleep(0.01)", patience)


def loop(iterations: int, body: str = "pass", patience: float = 5.0) -> str:
    """A script that goes through so many iterations and does `body` in each."""
    return LOOP.format(iterations=iterations, body=body, patience=patience)


def audit(ranks: Ranks, iterations: int) -> None:
    """Every number was decided once, with one set of members, and none was left out."""
    decided: dict[int, set[Record]] = defaultdict(set)
    for rank in range(ranks.world):
        records = ranks.records(rank)
        numbers = [record.iteration for record in records]
        assert numbers == sorted(set(numbers)), f"rank {rank} went back: {numbers}"
        for record in records:
            decided[record.iteration].add(record)
    twice = {n: records for n, records in decided.items() if len(records) > 1}
    assert not twice, f"decided twice: {twice}"
    assert sorted(decided) == list(range(iterations))
