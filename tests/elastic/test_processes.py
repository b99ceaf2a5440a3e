"""Ranks as real processes: killed, stopped, and with their store killed."""

import os
import signal
import time
from pathlib import Path

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from folkmoot.authority.store.kv import MAX_VALUE
from folkmoot.authority.store.kv.open import open_store, parse_url
from folkmoot.core.iteration import Record, keys
from folkmoot.core.iteration.record import read_record
from folkmoot.elastic.death_notice import write_death_notice
from support.ranks import PATIENCE, RACING, Ranks, audit, die_at_every_request, endless, loop
from support.stores import TcpServer

# Who only waits for a processor is not silent in the tests in which nobody is.
PATIENT = 6_000


@pytest.fixture
def four(tmp_path: Path, tcp_store_url: str, store_prefix: str) -> Ranks:
    return Ranks(tmp_path, tcp_store_url, 4, store_prefix)


def test_a_rank_that_is_killed_is_left_behind_and_comes_back(four: Ranks) -> None:
    with four as ranks:
        ranks.run_all(endless(), until=5)
        ranks.kill("rank-2")
        ranks.until(lambda: any(record.ranks == (0, 1, 3) for record in ranks.records(0)))
        ranks.run(2, endless())
        ranks.until(lambda: processes(ranks.records(0)[-1]) == {(0, 1), (1, 1), (2, 2), (3, 1)})


def test_a_rank_that_is_back_before_the_others_missed_it_is_waited_for(
    tmp_path: Path, tcp_store_url: str, store_prefix: str
) -> None:
    """The early restart: nobody goes on without it, and its new process is a member."""
    script = loop(10**6, "import time; time.sleep(0.01)")
    with Ranks(tmp_path, tcp_store_url, 3, store_prefix, heartbeat_timeout=10**7) as ranks:
        ranks.run_all(script, until=5)
        ranks.kill("rank-1")
        ranks.run(1, script)
        ranks.until(lambda: (1, 2) in processes(ranks.records(0)[-1]))
        after = ranks.newest()
        ranks.until(lambda: ranks.newest() > after + 5)
        ranks.stop()
        audit(ranks, ranks.newest() + 1)
        assert {record.ranks for record in ranks.records(0)} == {(0, 1, 2)}


def test_of_two_that_propose_at_the_same_time_one_wins(
    tmp_path: Path, tcp_store_url: str, store_prefix: str
) -> None:
    """The race: rank 0 saw that rank 2 had died, rank 1 that it is back, and both propose."""
    script, store = RACING.format(folder=str(tmp_path)), open_store(tcp_store_url, store_prefix)
    with Ranks(tmp_path, tcp_store_url, 3, store_prefix, heartbeat_timeout=10**7) as ranks:
        ranks.run_all(script)
        assert ranks["rank-2"].wait(PATIENCE) == -signal.SIGKILL
        ranks.kill("rank-2")
        assert write_death_notice(store, 2, 0)
        ranks.until((tmp_path / "proposal-0").exists)
        ranks.run(2, script)
        ranks.until(lambda: store.get(keys.last_iteration(2)) == b"5:2:0")
        (tmp_path / "back").touch()
        ranks.until(lambda: ranks.newest() >= 10)
        (tmp_path / "stop").touch()
        ranks.until_ended()
        audit(ranks, ranks.newest() + 1)
    proposals = [(tmp_path / f"proposal-{rank}").read_bytes().split(b"\n") for rank in range(2)]
    assert proposals[0][0] == proposals[1][0]
    members = [read_record(desired, 3).ranks for _, desired in proposals]  # type: ignore[union-attr]
    assert members == [(0, 1), (0, 1, 2)]


def test_kills_and_restarts_lose_no_iteration_and_decide_none_twice(four: Ranks) -> None:
    script = loop(120, "import time; time.sleep(0.02)")
    with four as ranks:
        ranks.run_all(script)
        for victim, at in enumerate((20, 40, 60, 80)):
            ranks.until(lambda at=at: ranks.newest() >= at)
            ranks.kill(f"rank-{victim}")
            ranks.run(victim, script)
        ranks.until_ended()
        audit(ranks, 120)


def test_a_rank_that_slept_through_iterations_joins_again(four: Ranks) -> None:
    with four as ranks:
        ranks.run_all(endless(), until=5)
        ranks.pause(1)
        ranks.until(lambda: ranks.records(0)[-1].ranks == (0, 2, 3))
        ranks.resume(1)
        ranks.until(lambda: ranks.records(0)[-1].ranks == (0, 1, 2, 3))
        ranks.until(lambda: ranks.records(1)[-1].iteration > ranks.records(0)[-1].iteration - 3)
        assert "the others went on" in ranks.output("rank-1")


def test_a_dead_store_ends_the_ranks_with_one_sentence(
    tmp_path: Path, own_tcp_store: TcpServer
) -> None:
    with Ranks(tmp_path, own_tcp_store.url, 2, "job") as ranks:
        ranks.run_all(endless(1.0), until=3)
        own_tcp_store.kill()
        ranks.all_end_with("StoreLost: the store at", "start it again with `folkmoot store serve`")
        for rank in range(2):
            assert "Traceback" not in ranks.output(f"rank-{rank}")


def test_a_store_that_comes_back_empty_ends_the_ranks(
    tmp_path: Path, own_tcp_store: TcpServer
) -> None:
    with Ranks(tmp_path, own_tcp_store.url, 2, "job") as ranks:
        ranks.run_all(endless(60.0), until=3)
        own_tcp_store.kill()
        own_tcp_store.restart()
        ranks.all_end_with(
            "StoreEmpty: the store has lost iteration", "Start all ranks again from their last"
        )


def test_ctrl_c_says_goodbye(four: Ranks) -> None:
    with four as ranks:
        ranks.run_all(endless(), until=3)
        ranks["rank-0"].send_signal(signal.SIGINT)
        assert ranks["rank-0"].wait(PATIENCE) == -signal.SIGINT
        ranks.failed()
        ranks.until(lambda: ranks.records(1)[-1].ranks == (1, 2, 3))
        assert ranks.told[0][-1].code == "Left"


def test_two_processes_of_one_rank_and_the_older_is_fenced(four: Ranks) -> None:
    with four as ranks:
        ranks.run_all(endless(), until=3)
        ranks.run(2, endless(), name="rank-2-again", FOLKMOOT_LOG=str(ranks.folder / "again"))
        assert ranks["rank-2"].wait(PATIENCE) == 1
        assert "Fenced: another process took rank 2 over" in ranks.output("rank-2")
        ranks.failed()
        ranks.until(lambda: (2, 2) in processes(ranks.records(0)[-1]))


def test_two_processes_of_one_rank_and_the_newer_is_refused(
    tmp_path: Path, tcp_store_url: str, store_prefix: str
) -> None:
    rules = {"takeover": "refuse", "heartbeat_timeout": PATIENT}
    with Ranks(tmp_path, tcp_store_url, 2, store_prefix, **rules) as ranks:
        ranks.run_all(endless(), until=3)
        ranks.run(1, endless(), name="rank-1-again", FOLKMOOT_LOG=str(ranks.folder / "again"))
        assert ranks["rank-1-again"].wait(PATIENCE) == 1
        told = ranks.output("rank-1-again")
        assert "RankTaken: rank 1 is alive in another process: give this one another rank" in told
        ranks.failed()
        before = ranks.newest()
        ranks.until(lambda: ranks.newest() > before)
        assert processes(ranks.records(0)[-1]) == {(0, 1), (1, 1)}


def test_a_rank_of_another_world_is_refused(four: Ranks) -> None:
    with four as ranks:
        ranks.run(0, loop(1), WORLD_SIZE="4")
        ranks.until(lambda: ranks.has_told(0))
        ranks.run(1, loop(1), WORLD_SIZE="5")
        assert ranks["rank-1"].wait(PATIENCE) == 1
        assert "WorldMismatch: rank 1 was started for 5 ranks" in ranks.output("rank-1")
        assert "use the same world everywhere, or another job name" in ranks.output("rank-1")


def test_a_clock_that_is_an_hour_off_and_goes_on_to_be_changes_nothing(
    tmp_path: Path, tcp_store_url: str, store_prefix: str
) -> None:
    """Who measured time by it would find the others silent at every look."""
    wrong = "import itertools, time; t, hours = time.time_ns, itertools.count(1)\n"
    wrong += "time.time_ns = lambda: t() + next(hours) * 3600 * 10**9\n"
    wrong += "time.time = lambda: time.time_ns() / 10**9\n"
    body = "import time; time.sleep(0.01)"
    with Ranks(tmp_path, tcp_store_url, 4, store_prefix, heartbeat_timeout=PATIENT) as ranks:
        for rank in range(4):
            ranks.run(rank, (wrong if rank == 1 else "") + loop(150, body))
        ranks.until_ended()
        audit(ranks, 150)
        assert {record.ranks for record in ranks.records(0)} == {(0, 1, 2, 3)}


def test_a_rank_whose_main_thread_starves_the_heartbeat_joins_again(four: Ranks) -> None:
    stop, starved, end = four.folder / "stop", four.folder / "starved", four.folder / "end"
    os.mkfifo(end)
    busy = f"""
            import ctypes, os, pathlib, time
            if iteration >= 5 and it.rank == 3 and not os.path.exists({str(starved)!r}):
                pathlib.Path({str(starved)!r}).touch()
                # It waits for who writes, and keeps the lock: no other thread runs.
                os.close(ctypes.PyDLL(None).open({bytes(end)!r}, os.O_RDONLY))
            if os.path.exists({str(stop)!r}): break
            time.sleep(0.02)"""
    with four as ranks:
        ranks.run_all(loop(10**6, busy))
        ranks.until(starved.exists)
        ranks.until(lambda: 3 not in ranks.records(0)[-1].ranks)
        end.write_bytes(b"")
        ranks.until(lambda: 3 in ranks.records(0)[-1].ranks)
        assert "the others went on to iteration" in ranks.output("rank-3")
        stop.touch()
        ranks.until_ended()
        audit(ranks, ranks.newest() + 1)


def test_garbage_where_the_decision_should_be_ends_the_ranks(
    four: Ranks, tcp_store_url: str, store_prefix: str
) -> None:
    with four as ranks:
        ranks.run_all(endless(), until=3)
        open_store(tcp_store_url, store_prefix).set(keys.CONSENSUS, b"\x00" * 1000)
        ranks.all_end_with(
            "Garbage: the store holds something else", "Use another job name or another store"
        )


def test_a_value_of_the_wrong_size_ends_the_ranks(
    four: Ranks, tcp_store_url: str, store_prefix: str
) -> None:
    host, port = parse_url(tcp_store_url).addresses[0]
    stranger = TCPStore(host, port, is_master=False, wait_for_workers=False)
    with four as ranks:
        ranks.run_all(endless(), until=3)
        stranger.set(f"{store_prefix}/{keys.CONSENSUS}", "x" * 2 * MAX_VALUE)
        size = f"holds a value of {2 * MAX_VALUE} bytes, where a store keeps at most"
        advice = "another program uses this key: give this job a name of its own"
        ranks.all_end_with("Garbage: ", size, advice)


def test_a_key_of_the_wrong_type_ends_the_rank_that_counts_with_it(
    four: Ranks, tcp_store_url: str, store_prefix: str
) -> None:
    open_store(tcp_store_url, store_prefix).set(keys.incarnation(1), b"a word")
    with four as ranks:
        ranks.run(1, loop(1))
        assert ranks["rank-1"].wait(PATIENCE) == 1
        told = ranks.output("rank-1")
        assert "Garbage: " in told
        assert "holds b'a word', not a number to add to; another program uses this key" in told
        assert "give this job a name of its own, or delete the key" in told


def test_a_store_that_is_slow_costs_nobody_their_place(
    tmp_path: Path, own_tcp_store: TcpServer
) -> None:
    with Ranks(tmp_path, own_tcp_store.url, 3, "job", heartbeat_timeout=PATIENT) as ranks:
        ranks.run_all(endless(60.0), until=3)
        before = ranks.newest()
        while ranks.newest() < before + 10:  # it answers only now and then
            own_tcp_store.signal(signal.SIGSTOP)
            time.sleep(0.5)
            own_tcp_store.signal(signal.SIGCONT)
            ranks.let_pass(0.05)
        assert {record.ranks for record in ranks.records(0)} == {(0, 1, 2)}


def test_a_store_that_hangs_for_a_while_costs_nobody_their_place(
    tmp_path: Path, own_tcp_store: TcpServer
) -> None:
    url = f"{own_tcp_store.url}?timeout=1"
    with Ranks(tmp_path, url, 3, "job", heartbeat_timeout=PATIENT) as ranks:
        ranks.run_all(endless(60.0), until=3)
        own_tcp_store.signal(signal.SIGSTOP)
        time.sleep(PATIENT / 1000 + 1)  # longer than the heartbeat's timeout
        told = "did not answer for 1 s; it hangs, is overloaded or"
        ranks.until(lambda: all(told in ranks.output(f"rank-{rank}") for rank in range(3)))
        own_tcp_store.signal(signal.SIGCONT)
        before = ranks.newest()
        ranks.until(lambda: ranks.newest() > before + 20)
        assert {record.ranks for record in ranks.records(0)} == {(0, 1, 2)}


def test_a_winner_that_dies_between_any_two_requests_holds_up_nobody(
    tmp_path: Path, tcp_store_url: str, store_prefix: str
) -> None:
    with Ranks(tmp_path, tcp_store_url, 3, store_prefix) as ranks:
        die_at_every_request(ranks, range(1, 6), winner=True)


def processes(record: Record) -> set[tuple[int, int]]:
    return {(member.rank, member.incarnation) for member in record.members}
