"""Folkmoot's side of `make bench-elastic`: a rank that advances, on a store that counts."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from elastic_advance import HOST, Joining
from folkmoot.authority.store.kv import Store, Wakeup
from folkmoot.authority.store.kv.open import open_store
from folkmoot.elastic import GlobalIteration

MAIN = threading.main_thread().ident


class CountingStore:
    """A store that knows how often it was asked; its clones count together with it.

    Reading several keys at once counts once for each. What a heartbeat's thread asks about
    heartbeats is counted by itself: that is a matter of time, not of iterations.
    """

    def __init__(self, store: Store, counts: Counter[str] | None = None) -> None:
        self._store = store
        self.counts: Counter[str] = Counter() if counts is None else counts

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def request(keys: str | Sequence[str], *arguments: Any) -> Any:
            self._count([keys] if isinstance(keys, str) else keys)
            return getattr(self._store, operation)(keys, *arguments)

        return request

    def compare_set_then_set(
        self, key: str, expected: bytes, desired: bytes, others: Sequence[str], value: bytes
    ) -> bytes | None:
        self._count([key, *others])
        return self._store.compare_set_then_set(key, expected, desired, others, value)

    def compare_set_and_append(
        self,
        key: str,
        expected: bytes,
        desired: bytes,
        list_key: str,
        note: bytes,
        wakeup: Wakeup | None = None,
    ) -> tuple[bytes | None, ...]:
        self._count([key, list_key, list_key])  # it is written and read
        got = self._store.compare_set_and_append(key, expected, desired, list_key, note, wakeup)
        if wakeup is not None:  # asked for along with the rest, and cancelled if it was not waited
            self._count([wakeup.key, wakeup.then] if len(got) > 2 and wakeup.then else [wakeup.key])
        return got

    def wait(self, key: str, seconds: float, then: str = "") -> bytes | None:
        self._count([key, then] if then else [key])
        return self._store.wait(key, seconds, then)

    def clone(self) -> "CountingStore":
        return CountingStore(self._store.clone(), self.counts)

    def close(self) -> None:
        self._store.close()

    def _count(self, keys: Sequence[str]) -> None:
        if threading.get_ident() == MAIN:
            self.counts["iteration"] += len(keys)  # each kind has one thread
        elif all("heartbeat_" in key for key in keys):
            self.counts["heartbeats"] += len(keys)
        else:
            self.counts["housekeeping"] += len(keys)


class OurBarrier(AbstractContextManager["OurBarrier"]):
    """`BareBarrier` through our client of a TCPStore: what that alone costs."""

    def __init__(self, port: int, run: str, rank: int, world: int) -> None:
        self._store = open_store(f"tcp://{HOST}:{port}")
        self._run, self._rank, self._world = run, rank, world
        self._iteration = 0

    def advance(self) -> None:
        self._iteration += 1
        here, mine = f"{self._run}/{self._iteration}", b"%d:1" % self._rank
        first = self._store.compare_set(f"{here}/slot/{self._rank}", b"", mine) == mine
        if first and self._store.add(f"{here}/count", 1) == self._world:
            self._store.set(f"{here}/ready", b"1")
        else:
            self._store.wait(f"{here}/ready", 300.0)

    def counts(self) -> Counter[str]:
        return Counter(iteration=3 * self._iteration)

    def __exit__(self, *raised: object) -> None:
        self._store.close()


class OurRank(AbstractContextManager["OurRank"]):
    """One rank of a job, as a training loop has it."""

    def __init__(
        self,
        heartbeat: float,
        timeout: float,
        counting: bool,
        port: int,
        run: str,
        rank: int,
        world: int,
    ) -> None:
        self._store = open_store(f"tcp://{HOST}:{port}")
        self._counted: Counter[str] = Counter()
        self._iteration = GlobalIteration(
            CountingStore(self._store, self._counted) if counting else self._store,
            rank,
            world,
            run,
            heartbeat_interval=round(1000 * heartbeat),
            heartbeat_timeout=round(1000 * timeout),
            join_timeout=300_000,
        )

    def __enter__(self) -> "OurRank":
        self._iteration.__enter__()
        return self

    def advance(self) -> None:
        self._iteration.progress += 1  # as a training loop does
        going_on = self._iteration.advance()
        assert going_on

    def counts(self) -> Counter[str]:
        return self._counted.copy()

    def __exit__(self, *raised: object) -> None:
        self._iteration.__exit__(None)
        self._store.close()


def our_rank(heartbeat: float, timeout: float, counting: bool = False) -> Joining:
    """`counting` takes time: what is timed does not count, and what counts is not timed."""
    return partial(OurRank, heartbeat, timeout, counting)
