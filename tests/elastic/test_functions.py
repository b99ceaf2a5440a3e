"""The steps one by one: alone, against each other, and among ranks that use the loop."""

import time

import pytest

from folkmoot.authority.store.kv.open import open_store
from folkmoot.core.iteration import keys
from folkmoot.elastic import Fenced, GlobalIteration
from folkmoot.elastic import functions as f
from support.in_threads import in_threads


def iterate(rank: f.Rank) -> tuple[int, tuple[int, ...]]:
    """One iteration, as the module's docstring has it."""
    while True:
        f.record_iteration_for_rank(rank)
        while f.increment_global_iteration(rank) is None:
            f.catch_up_restarting_rank(rank, 0.05)
            f.send_heartbeat(rank)
            f.get_active_ranks_for_coordination(rank)
        f.signal_global_iteration_ready(rank)
        f.clear_global_iteration_ready(rank)
        if rank.trains:
            assert rank.record is not None
            return rank.record.iteration, rank.record.ranks


def test_ranks_that_take_the_steps_themselves_agree_with_those_that_do_not(
    store_url: str, store_prefix: str
) -> None:
    seen: dict[int, list[tuple[int, tuple[int, ...]]]] = {}

    def by_steps(number: int) -> None:
        store = open_store(store_url, store_prefix)
        rank = f.handle_rank_restart(store, number, 3, heartbeat_timeout=60_000)
        seen[number] = [iterate(rank) for _ in range(10)]

    def by_loop() -> None:
        options = {"iterations": 10, "heartbeat_timeout": 60_000}
        with GlobalIteration(store_url, 2, 3, store_prefix, **options) as it:  # type: ignore[arg-type]
            seen[2] = [(iteration, it.members) for iteration in it]

    in_threads(lambda: by_steps(0), lambda: by_steps(1), by_loop)
    assert seen[0] == seen[1] == seen[2] == [(n, (0, 1, 2)) for n in range(10)]
    assert open_store(store_url, store_prefix).get(keys.COUNTER)


def test_nothing_is_decided_while_somebody_is_missing(store_url: str, store_prefix: str) -> None:
    store = open_store(store_url, store_prefix)
    zero = f.handle_rank_restart(store, 0, 2)
    f.record_iteration_for_rank(zero)
    assert f.increment_global_iteration(zero) is None
    assert f.catch_up_restarting_rank(zero) == -1
    one = f.handle_rank_restart(open_store(store_url, store_prefix), 1, 2)
    f.record_iteration_for_rank(one)
    record = f.increment_global_iteration(one)
    assert record is not None
    assert (record.iteration, record.ranks) == (0, (0, 1))
    # It has nothing more to do for the others: rank 0 finds the decision and goes on.
    assert f.increment_global_iteration(zero) == record


def test_the_number_that_is_shown_does_not_go_back(store_url: str, store_prefix: str) -> None:
    """Neither by a winner that cleans up for several iterations at once, nor by a late one."""
    store = open_store(store_url, store_prefix)
    rank = f.handle_rank_restart(store, 0, 1)
    for _ in range(3):
        f.record_iteration_for_rank(rank)
        assert f.increment_global_iteration(rank)
    f.clear_global_iteration_ready(rank)
    assert store.get(keys.COUNTER) == b"2"
    store.set(keys.COUNTER, b"500")
    iterate(rank)
    assert store.get(keys.COUNTER) == b"500"


def test_only_a_heartbeat_that_moves_is_active(store_url: str, store_prefix: str) -> None:
    zero, one = (
        f.handle_rank_restart(
            open_store(store_url, store_prefix), r, 2, heartbeat_interval=50, heartbeat_timeout=200
        )
        for r in range(2)
    )
    assert f.get_active_ranks_for_coordination(zero) == {0, 1}
    deadline = time.monotonic() + 120
    while f.get_active_ranks_for_coordination(zero) != {0}:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    f.send_heartbeat(one)
    assert f.get_active_ranks_for_coordination(zero) == {0, 1}


def test_an_older_process_is_fenced(store_url: str, store_prefix: str) -> None:
    older = f.handle_rank_restart(open_store(store_url, store_prefix), 0, 1)
    f.send_heartbeat(older)
    newer = f.handle_rank_restart(open_store(store_url, store_prefix), 0, 1)
    with pytest.raises(Fenced):
        f.send_heartbeat(older)
    assert iterate(newer) == (0, (0,))
