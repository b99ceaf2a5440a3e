"""Processes of this machine: who is left when one of those who hold them is killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.core.job.messages import Place, Unplaceable
from folkmoot.core.job.placement import Bundle
from folkmoot.unified.substrate import Name, Superseded
from folkmoot.unified.substrate.local import LocalSubstrate
from unified.substrate.processes import stop, wait_for_file, wait_gone
from unified.substrate.stand import Stand, end_all

ALONE = 60.0


@pytest.fixture
def home(folder: Path) -> Iterator[Path]:
    """The fork server's folder; what is left in it in the end is ended."""
    home = folder / "fork_server"
    yield home
    end_all(LocalSubstrate(home))


def stand_at(home: Path, epoch: int = 1, alone: float = ALONE) -> Stand:
    return Stand(LocalSubstrate(home, alone=alone), home.parent, epoch)


def fork_server_of(stand: Stand, actor: str) -> int:
    """The process that forked this actor."""
    pid = stand.created(actor).pid
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_stopped_actor_that_ignores_signals_is_killed(home: Path) -> None:
    """P17: a kill that fails in silence leaves a hung actor for ever."""
    stand = stand_at(home)
    pid = stand.create("a-0", "hangs").pid
    wait_for_file(stand.said("a-0"))
    assert stand.kill("a-0").how == "was ended by SIGKILL"
    wait_gone(pid)


def test_what_an_actor_started_ends_with_it(home: Path) -> None:
    stand = stand_at(home)
    stand.create("a-0", "has_children")
    children = [int(pid) for pid in wait_for_file(stand.said("a-0")).split()]
    stand.kill("a-0")
    for pid in children:
        wait_gone(pid)


def test_an_actor_prints_into_its_log_and_has_its_environment(home: Path) -> None:
    stand = stand_at(home)
    log = home.parent / "logs" / "a-0.log"
    stand.create("a-0", "says_environment", env={"COLOUR": "green"}, log=str(log))
    assert stand.ended("a-0").clean
    assert wait_for_file(stand.said("a-0")) == "green"
    assert log.read_text() == "printed by the actor\n"


def test_actors_outlive_their_fork_server(home: Path) -> None:
    stand = stand_at(home)
    pid = stand.create("a-0", "waits").pid
    os.kill(fork_server_of(stand, "a-0"), signal.SIGKILL)
    stand.create("a-1", "returns")  # by the next fork server
    assert stand.ended("a-1").clean
    assert not [event for event in stand.heard if event.actor == "a-0"][1:]
    os.kill(pid, signal.SIGKILL)
    assert "nobody knows how" in stand.ended("a-0").how


def test_an_end_that_no_fork_server_saw_is_told_by_the_next(home: Path) -> None:
    stand = stand_at(home)
    pid = stand.create("a-0", "waits").pid
    fork_server = fork_server_of(stand, "a-0")
    stop(fork_server)
    os.kill(pid, signal.SIGKILL)
    os.kill(fork_server, signal.SIGKILL)
    assert "unseen" in stand.ended("a-0").how


def test_an_end_that_no_master_heard_is_told_to_the_next(home: Path) -> None:
    first = stand_at(home)
    pid = first.create("a-0", "waits").pid
    first.substrate.close()
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
    second = stand_at(home, epoch=2)
    if second.found.living:  # it was reaped only just now
        second.ended("a-0")
    else:
        assert [ended.how for ended in second.found.ended] == ["was ended by SIGKILL"]


def test_orders_of_an_older_master_are_refused(home: Path) -> None:
    old = stand_at(home, epoch=1)
    old.create("a-0", "waits")
    new = stand_at(home, epoch=2)
    with pytest.raises(Superseded, match="epoch 2"):
        stand_at(home, epoch=1)
    old.substrate._listener.join(60)  # type: ignore[attr-defined]
    with pytest.raises(Superseded, match="epoch 2"):
        old.substrate.kill(Name("a-0", 1))
    assert new.found.living == (old.created("a-0"),)


@pytest.mark.parametrize(("leave", "alone"), [("end", ALONE), ("close", 1.0)])
def test_at_the_end_and_when_no_master_comes_back_no_fork_server_and_no_socket_is_left(
    home: Path, leave: str, alone: float
) -> None:
    stand = stand_at(home, alone=alone)
    pid = stand.create("a-0", "waits").pid
    fork_server = fork_server_of(stand, "a-0")
    getattr(stand.substrate, leave)()
    wait_gone(fork_server)
    wait_gone(pid)
    assert not [*home.glob("*.sock"), *home.glob("*.pid")]


def test_what_one_machine_cannot_hold_is_refused(home: Path) -> None:
    stand = stand_at(home)
    two = (Bundle(("a-0",), {"gpu": 64.0}), Bundle(("a-1",), {"gpu": 64.0}))
    stand.substrate.place(Place("a", "STRICT_SPREAD", two, 2))
    assert "this is one" in stand.wait(Unplaceable).reason
    stand.substrate.place(Place("b", "PACK", two, 2))
    assert "128 GPUs" in stand.wait(Unplaceable, lambda e: e.gang == "b").reason
