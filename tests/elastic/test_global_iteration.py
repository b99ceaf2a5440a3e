"""The loop around the machine: in threads, on every store."""

import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from folkmoot.authority.store.kv.open import open_store
from folkmoot.core.iteration import keys
from folkmoot.elastic import (
    Fenced,
    Garbage,
    GlobalIteration,
    RankTaken,
    StoreEmpty,
    WorldMismatch,
)
from folkmoot.elastic import global_iteration as module
from folkmoot.host.event_log import LogReader, records_in
from support.in_threads import in_threads

# Nobody is silent, however long a thread waits for a processor: who leaves says so.
QUICK = {"heartbeat_interval": 50, "heartbeat_timeout": 10**7, "join_timeout": 60_000}


class Job:
    """Ranks of one job, for the threads of this process."""

    def __init__(self, url: str, world: int, job: str) -> None:
        self.url, self.world, self.job = url, world, job

    def rank(self, rank: int, **options: Any) -> GlobalIteration:
        return GlobalIteration(self.url, rank, self.world, self.job, **{**QUICK, **options})


@pytest.fixture
def three(store_url: str, store_prefix: str) -> Job:
    return Job(store_url, 3, store_prefix)


@pytest.fixture
def alone(store_url: str, store_prefix: str) -> Job:
    return Job(store_url, 1, store_prefix)


def test_all_ranks_see_the_same_iterations_and_members(three: Job) -> None:
    seen: dict[int, list[tuple[int, tuple[int, ...]]]] = {}

    def work(rank: int) -> None:
        with three.rank(rank, iterations=20) as it:
            seen[rank] = [(iteration, it.members) for iteration in it]

    in_threads(*(partial(work, rank) for rank in range(3)))
    assert seen[0] == seen[1] == seen[2] == [(n, (0, 1, 2)) for n in range(20)]


def test_progress_is_told_with_the_next_arrival(three: Job) -> None:
    progress: list[list[int]] = []

    def work(rank: int) -> None:
        with three.rank(rank, iterations=3, progress=rank) as it:
            for iteration in it:
                if rank == 0:
                    known = dict.fromkeys(it.members, it.record.progress)
                    known |= {member.rank: member.progress for member in it.record.behind}
                    progress.append([known[member] for member in it.members])
                it.progress = 10 * iteration + rank

    in_threads(*(partial(work, rank) for rank in range(3)))
    assert progress == [[0, 1, 2], [0, 1, 2], [10, 11, 12]]


def test_who_leaves_is_not_waited_for(three: Job) -> None:
    """They hear its farewell: to wait until it is silent would take longer than this test may."""
    last: dict[int, tuple[int, ...]] = {}

    def work(rank: int) -> None:
        with three.rank(rank, iterations=3 if rank == 1 else 6) as it:
            for _ in it:
                last[rank] = it.members

    in_threads(*(partial(work, rank) for rank in range(3)))
    assert last == {0: (0, 2), 1: (0, 1, 2), 2: (0, 2)}


def test_a_rank_that_comes_late_is_admitted(three: Job) -> None:
    first, late = threading.Event(), threading.Event()
    members: list[tuple[int, ...]] = []

    def early(rank: int) -> None:
        with three.rank(rank, join_timeout=0) as it:
            for _ in it:
                members.append(it.members)
                first.set()
                if late.is_set():
                    break
                time.sleep(0.01)

    def newcomer() -> None:
        first.wait(30)
        with three.rank(2) as it:
            assert it.advance()
            assert 2 in it.members
            late.set()

    in_threads(partial(early, 0), partial(early, 1), newcomer)


def test_a_second_process_of_a_rank_fences_the_first(alone: Job) -> None:
    with alone.rank(0) as older:
        assert older.advance()
        with alone.rank(0) as newer:
            assert newer.advance()
            assert (older.incarnation, newer.incarnation) == (1, 2)
            with pytest.raises(Fenced, match="another process took rank 0 over"):
                older.advance()
            assert newer.advance()


def test_the_fenced_process_does_not_end_the_newer_ones_heartbeat(alone: Job) -> None:
    newer = alone.rank(0)
    with alone.rank(0) as older:
        assert older.advance()
        newer.__enter__()
    standing = open_store(alone.url, alone.job).get(keys.heartbeat(0)) or b""
    assert standing.startswith(b"2:")
    assert standing[2:].isdigit()
    newer.__exit__(None)


def test_or_is_refused_if_it_was_told_so(alone: Job) -> None:
    with alone.rank(0) as older:
        assert older.advance()
        with pytest.raises(RankTaken, match="rank 0 is alive in another process"):
            # It looks again after the time-out: by then the heartbeat has moved.
            alone.rank(0, takeover="refuse", heartbeat_timeout=3_000).__enter__()
        assert older.advance()
    with alone.rank(0, takeover="refuse") as newer:
        assert newer.advance()


def test_another_number_of_ranks_is_refused(three: Job) -> None:
    first = three.rank(0)
    with first:
        three.world = 4
        with pytest.raises(WorldMismatch, match="started for 4 ranks"):
            three.rank(1).__enter__()


def test_a_store_that_forgot_everything_stops_the_rank(alone: Job) -> None:
    with alone.rank(0) as it:
        assert it.advance()
        store = open_store(alone.url, alone.job)
        for key in (keys.CONSENSUS, keys.heartbeat(0), keys.last_iteration(0)):
            store.delete(key)
        with pytest.raises(StoreEmpty, match="restarted empty"):
            it.advance()


@pytest.mark.parametrize("key", [keys.CONSENSUS, keys.incarnation(0), keys.heartbeat(0)])
def test_a_stranger_in_the_store_is_noticed(alone: Job, key: str) -> None:
    open_store(alone.url, alone.job).set(key, b"not \xff ours")
    if key == keys.heartbeat(0):  # what is no heartbeat is nobody's: the rank takes it over
        with alone.rank(0) as it:
            assert it.advance()
        return
    with pytest.raises(Garbage), alone.rank(0) as it:
        it.advance()


def test_hints_of_a_stranger_change_nothing(alone: Job) -> None:
    store = open_store(alone.url, alone.job)
    for n in range(3):
        store.set(keys.ready(n), b"rubbish")
    store.set(keys.last_iteration(0), b"rubbish")
    store.set(keys.COUNTER, b"rubbish")
    with alone.rank(0, iterations=3) as it:
        assert list(it) == [0, 1, 2]


def test_whom_it_waits_for_is_said(
    three: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "TELL_AFTER", 0)
    with three.rank(0, join_timeout=1_000) as it:
        assert it.advance()
    assert "rank 0 waits to begin iteration 0 for ranks 1, 2: the first iteration" in caplog.text


def test_that_all_who_had_the_state_are_gone_is_said(
    alone: Job, caplog: pytest.LogCaptureFixture
) -> None:
    for progress in (0, 7):
        with alone.rank(0, progress=progress) as it:
            assert it.advance()
    assert "all ranks that had" not in caplog.text
    with alone.rank(0, progress=3) as it:
        assert it.advance()
    assert "all ranks that had 7 steps are gone, and training goes on from step 3" in caplog.text


def test_the_log_tells_what_happened(alone: Job, tmp_path: Path) -> None:
    with alone.rank(0, iterations=2, log=tmp_path / "events.jsonl") as it:
        list(it)
    read = LogReader(tmp_path / "events.jsonl", records_in(module.m))
    kinds = [type(entry.record).__name__ for entry in read.new()]
    assert kinds == ["Born", "Advanced", "Advanced", "Stopped"]


def test_the_number_is_shown_and_old_keys_are_deleted(alone: Job) -> None:
    store = open_store(alone.url, alone.job)
    with alone.rank(0, heartbeat_interval=10) as it:
        while it.advance() and it.iteration < 200:
            if it.iteration == 100:
                time.sleep(0.05)
        deadline = time.monotonic() + 120
        while store.get(keys.COUNTER) != b"200" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert store.get(keys.COUNTER) == b"200"
        assert store.get(keys.ready(196)) is None
        assert store.get(keys.arrived(100)) is None
        assert store.get(keys.ready(200)) is not None


def test_the_number_that_is_shown_does_not_go_back(alone: Job) -> None:
    """A winner that was stopped before it kept house, and goes on when others are far ahead."""
    store, looks = open_store(alone.url, alone.job), threading.Semaphore(0)
    store.set(keys.COUNTER, b"500")
    with alone.rank(0, heartbeat_interval=10) as it:
        assert it.advance()
        it.on_look(looks.release)
        for _ in range(3):  # one may have begun before; house is kept between two others
            assert looks.acquire(timeout=60)
        assert store.get(keys.COUNTER) == b"500"


def test_a_finished_job_has_nothing_to_do_for_those_who_come_later(three: Job) -> None:
    with three.rank(0, join_timeout=0) as it:
        assert it.advance()
        it.finish()
        assert not it.advance()
    with three.rank(1) as late:
        assert list(late) == []
        assert late.finished


@pytest.mark.parametrize(
    ("missing", "message"),
    [("RANK", "RANK is not set"), ("WORLD_SIZE", "WORLD_SIZE is"), ("FOLKMOOT_STORE", "no store")],
)
def test_what_the_launcher_did_not_say_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, missing: str, message: str
) -> None:
    said = {"RANK": "0", "WORLD_SIZE": "2", "FOLKMOOT_STORE": "memory://x"}
    for name in said:
        monkeypatch.delenv(name, raising=False)
    for name in said.keys() - {missing}:
        monkeypatch.setenv(name, said[name])
    with pytest.raises(ValueError, match=message):
        GlobalIteration()


def test_rules_of_the_job_come_from_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLKMOOT_RULES", '{"min_ranks": 2, "join_timeout": 7}')
    it = GlobalIteration("memory://rules", 0, 2, join_timeout=9)
    assert (it.rules.min_ranks, it.rules.join_timeout) == (2, 9)
    monkeypatch.setenv("FOLKMOOT_RULES", '{"min_rank": 2}')
    with pytest.raises(ValueError, match="min_rank"):
        GlobalIteration("memory://rules", 0, 2)
