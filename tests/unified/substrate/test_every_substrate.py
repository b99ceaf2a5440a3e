"""What holds on every substrate."""

from collections.abc import Callable
from pathlib import Path

import pytest

from folkmoot.core.job.messages import Place, Placed
from folkmoot.core.job.placement import Bundle
from folkmoot.unified.substrate import Created, Substrate
from unified.substrate.processes import wait_for_file
from unified.substrate.stand import Stand


@pytest.fixture
def stand(open_substrate: Callable[[], Substrate], folder: Path) -> Stand:
    return Stand(open_substrate(), folder)


@pytest.fixture
def quick_stand(open_quick: Callable[[], Substrate], folder: Path) -> Stand:
    return Stand(open_quick(), folder)


def test_an_actor_whose_main_returns_has_ended_well(stand: Stand) -> None:
    created = stand.create("a-0", "returns")
    assert created.node
    assert stand.ended("a-0").clean


@pytest.mark.parametrize("does", ["raises", "exits"])
def test_an_actor_whose_main_fails_has_not_ended_well(quick_stand: Stand, does: str) -> None:
    quick_stand.create("a-0", does)
    ended = quick_stand.ended("a-0")
    assert not ended.clean
    assert "exit code" in ended.how


def test_a_main_that_is_not_there_is_the_end_of_its_actor(quick_stand: Stand) -> None:
    quick_stand.create("a-0", "nothing_of_that_name")
    assert not quick_stand.ended("a-0").clean


def test_a_killed_actor_has_ended_and_the_others_live(stand: Stand) -> None:
    stand.substrate.create([stand.launch(f"a-{n}", "waits") for n in range(3)])
    for n in range(3):
        wait_for_file(stand.said(f"a-{n}"))
    assert not stand.kill("a-1").clean
    found = Stand(stand.substrate, stand.folder, epoch=2).found
    assert {created.actor for created in found.living} == {"a-0", "a-2"}


def test_the_next_incarnation_is_another_actor(quick_stand: Stand) -> None:
    quick_stand.create("a-0", "waits", 1)
    quick_stand.kill("a-0", 1)
    quick_stand.create("a-0", "waits", 2)
    quick_stand.substrate.kill(
        quick_stand.launch("a-0", "waits", 1).name
    )  # too late to be for this one
    quick_stand.create("a-1", "returns")
    quick_stand.ended("a-1")
    assert quick_stand.kill("a-0", 2).incarnation == 2


def test_an_order_given_twice_makes_one_actor(stand: Stand) -> None:
    launch = stand.launch("a-0", "waits")
    stand.substrate.create([launch, launch])
    stand.created("a-0")
    stand.substrate.create([launch])
    stand.create("a-1", "returns")
    stand.ended("a-1")
    told = [event for event in stand.heard if isinstance(event, Created)]
    assert [event.actor for event in told].count("a-0") == 1


def test_actors_go_on_when_their_master_lets_go(
    open_substrate: Callable[[], Substrate], folder: Path
) -> None:
    first = Stand(open_substrate(), folder)
    created = first.create("a-0", "waits")
    first.substrate.close()
    second = Stand(open_substrate(), folder, epoch=2)
    assert second.found.living == (created,)
    assert not second.kill("a-0").clean


def test_gangs_are_placed(stand: Stand) -> None:
    bundles = (Bundle(("a-0", "b-0"), {"cpu": 1.0}), Bundle(("a-1", "b-1"), {"cpu": 1.0}))
    stand.substrate.place(Place("a+b", "PACK", bundles, 2))
    placed = stand.wait(Placed)
    assert placed.gang == "a+b"
    assert placed.nodes.keys() == {"a-0", "b-0", "a-1", "b-1"}
    stand.substrate.release("a+b")


def test_nothing_lives_after_the_end(open_substrate: Callable[[], Substrate], folder: Path) -> None:
    stand = Stand(open_substrate(), folder)
    stand.substrate.create([stand.launch(f"a-{n}", "waits") for n in range(3)])
    for n in range(3):
        stand.created(f"a-{n}")
    stand.substrate.end()
    assert Stand(open_substrate(), folder, epoch=2).found.living == ()
