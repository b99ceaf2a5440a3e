"""Ranks of an elastic job hurt for a long time, on a TCPStore and on etcd."""

import random
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from elastic.test_torch import EXAMPLE, example, plain_losses, read_losses
from folkmoot.authority.store.kv.open import open_store
from folkmoot.core.iteration import keys
from folkmoot.core.iteration.record import read_record
from support.commands import FOLKMOOT, elastic_run
from support.etcd import Etcd
from support.ranks import Ranks, audit, die_at_every_request, loop

pytestmark = pytest.mark.faults
__all__ = ["example"]  # a fixture
WORLD, ITERATIONS = 8, 300


@pytest.fixture(params=["tcp_store_url", "etcd_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def eight(tmp_path: Path, url: str, store_prefix: str) -> Ranks:
    return Ranks(tmp_path, url, WORLD, store_prefix)


def ends_at_the_same_number(ranks: Ranks) -> None:
    ended = [re.findall(r"^ended at (\d+)$", ranks.output(f"rank-{r}"), re.M) for r in range(WORLD)]
    assert ended == [[str(ITERATIONS - 1)]] * WORLD


def is_over(ranks: Ranks) -> bool:
    return ranks.newest() >= ITERATIONS - 1


@pytest.mark.timeout(900)
def test_a_kill_every_second_loses_no_iteration_and_decides_none_twice(eight: Ranks) -> None:
    script, chance = loop(ITERATIONS, "import time; time.sleep(0.1)", 60.0), random.Random(1)
    with eight as ranks:
        ranks.run_all(script, until=1)
        kills = 0
        while not is_over(ranks):
            victim = chance.randrange(WORLD)
            if ranks[f"rank-{victim}"].poll() is None:
                ranks.kill(f"rank-{victim}")
                ranks.run(victim, script)
                kills += 1
            ranks.let_pass(1.0)
        ranks.until_ended()
        audit(ranks, ITERATIONS)
        ends_at_the_same_number(ranks)
        assert kills >= 20


@pytest.mark.timeout(900)
def test_ranks_that_are_stopped_for_longer_than_the_timeout(eight: Ranks) -> None:
    script, chance = loop(ITERATIONS, "import time; time.sleep(0.1)", 60.0), random.Random(2)
    with eight as ranks:
        ranks.run_all(script, until=1)
        while not is_over(ranks):
            victim = chance.randrange(WORLD)
            if ranks[f"rank-{victim}"].poll() is None:
                ranks.pause(victim)
                ranks.let_pass(3.0)
                ranks.resume(victim)
            ranks.let_pass(0.5)
        ranks.until_ended()
        audit(ranks, ITERATIONS)
        ends_at_the_same_number(ranks)
        assert any(len(record.ranks) < WORLD for r in range(WORLD) for record in ranks.records(r))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("winner", [False, True])
def test_a_rank_may_die_at_every_request(
    tmp_path: Path, url: str, store_prefix: str, winner: bool
) -> None:
    with Ranks(tmp_path, url, 3, store_prefix) as ranks:
        die_at_every_request(ranks, range(1, 8 if winner else 20), winner)


@pytest.mark.timeout(600)
def test_an_etcd_member_and_then_all_of_etcd_go_away(tmp_path: Path, three_members: Etcd) -> None:
    with Ranks(tmp_path / "ranks", three_members.url, 4, "job", heartbeat_timeout=5_000) as ranks:
        ranks.run_all(loop(10**6, "import time; time.sleep(0.05)", 120.0), until=3)
        leader = three_members.leader()
        three_members.kill(leader)
        go_on(ranks)
        three_members.start(leader)
        three_members.kill(*three_members.names)
        three_members.start(*three_members.names)
        go_on(ranks)
        audit_so_far(ranks)


def go_on(ranks: Ranks) -> None:
    before = ranks.newest()
    ranks.until(lambda: ranks.newest() > before + 20)


def audit_so_far(ranks: Ranks) -> None:
    ranks.stop()
    audit(ranks, ranks.newest() + 1)


@pytest.mark.timeout(900)
def test_a_training_is_the_same_after_many_kills(
    tmp_path: Path, url: str, store_prefix: str, example: Any
) -> None:
    steps, chance, store = 200, random.Random(3), open_store(url, store_prefix)
    options = ["-n", "4", f"--store={url}", f"--job={store_prefix}", "--max-restarts=1000"]
    script = [str(EXAMPLE), f"--steps={steps}", "--pause=0.2", f"--losses={tmp_path}"]
    with subprocess.Popen([*FOLKMOOT, "elastic", "run", *options, *script]) as launcher:
        try:
            kills, last = 0, 0
            while launcher.poll() is None:
                # Somebody must be left who has the state: a process takes seconds to start, and
                # whoever was killed is a member until a decision leaves it out.
                record = read_record(store.get(keys.CONSENSUS), 4)
                if record and len(record.ranks) >= 3 and record.iteration > last + 2:
                    kills, last = kills + kill_one_rank(launcher.pid, chance), record.iteration
                time.sleep(chance.uniform(1, 4))
        finally:
            launcher.terminate()
    assert launcher.returncode == 0
    assert kills >= 4
    expected = plain_losses(example, steps)
    assert read_losses(tmp_path) == {step: {loss} for step, loss in enumerate(expected)}


def kill_one_rank(launcher: int, chance: random.Random) -> bool:
    """One of the launcher's children that runs the example, by `kill -9`."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children")
    try:
        pids = [int(pid) for pid in children.read_text().split()]
        ranks = [p for p in pids if EXAMPLE.name in Path(f"/proc/{p}/cmdline").read_text()]
    except FileNotFoundError:  # one has just ended
        return False
    if not ranks:
        return False
    subprocess.run(["kill", "-9", str(chance.choice(ranks))], check=False)
    return True


def test_torchrun_scripts_with_a_process_group_of_their_own_start_again(
    tmp_path: Path, url: str
) -> None:
    script = tmp_path / "plain.py"
    script.write_text(
        "import os, signal, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "again = os.environ['TORCHELASTIC_RESTART_COUNT'] != '0'\n"
        "if dist.get_rank() == 1 and not again: os.kill(os.getpid(), signal.SIGKILL)\n"
        "ones = torch.ones(1)\n"
        "dist.all_reduce(ones)\n"
        "print('sum', int(ones))\n"
        "dist.destroy_process_group()\n"
    )
    done = elastic_run("-n", "4", f"--store={url}", script)
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] sum 4" for rank in range(4)]
