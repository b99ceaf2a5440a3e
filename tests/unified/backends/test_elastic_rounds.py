"""Who is checked with whom, who is slow and who is unfit."""

import random

import pytest

from folkmoot.unified.backends.elastic.rounds import (
    CheckOutcome,
    again,
    crossed,
    neighbours,
    slow,
    stragglers,
    unfit,
)

GONE = CheckOutcome(why="no answer", silent=True)
FAILED = CheckOutcome(why="all-reduce failed")


def ok(*names: str, seconds: float = 1.0) -> dict[str, CheckOutcome]:
    return dict.fromkeys(names, CheckOutcome(seconds))


@pytest.mark.parametrize("seed", range(200))
def test_one_percent_of_jitter_makes_nobody_a_straggler(seed: int) -> None:
    """P16: the public rule flags 6 of 8 nodes for it."""
    chance = random.Random(seed)
    times = {f"w-{k}": 5.0 * (1 + chance.uniform(-0.01, 0.01)) for k in range(8)}
    assert not slow(times)


def test_exactly_equal_times_but_one_a_little_off_are_no_stragglers() -> None:
    """The deviation is 0 then, and everything is infinitely far."""
    assert not slow({**dict.fromkeys("abcdefg", 1.0), "h": 1.05})


@pytest.mark.parametrize("count", [2, 3, 8])
def test_one_that_takes_twice_as_long_is_a_straggler(count: int) -> None:
    times = {f"w-{k}": 1.0 + 0.01 * k for k in range(count)}
    assert slow({**times, "w-0": 2.1}) == {"w-0": pytest.approx(2.1 / 1.01, rel=0.1)}


def test_times_that_are_spread_anyway_have_no_stragglers() -> None:
    assert not slow(dict(zip("abcdefgh", (1.0, 1.3, 1.6, 1.9, 2.2, 2.5, 2.8, 3.1), strict=True)))


def test_nobody_is_slow_where_nobody_is() -> None:
    assert slow({}) == {}
    assert slow({"a": 0.0, "b": 0.0}) == {}


def test_a_slow_ones_partner_is_cleared_by_the_second_round() -> None:
    first = {**ok("c", "d", "e", "f"), **ok("a", "b", seconds=4.0)}
    assert again(first)
    second = {**ok("b", "d", "e", "f"), **ok("a", "c", seconds=4.0)}
    assert stragglers([first, second]) == {"a": 4.0}


@pytest.mark.parametrize("count", range(1, 10))
def test_everybody_is_in_one_group_and_nobody_alone(count: int) -> None:
    world = [f"w-{k}" for k in range(count)]
    for groups in (neighbours(world), crossed(ok(*world))):
        assert sorted(name for group in groups for name in group) == sorted(world)
        assert all(2 <= len(group) <= 3 for group in groups) or count == 1


def test_who_failed_meets_somebody_who_did_not() -> None:
    groups = crossed({"a": FAILED, "b": FAILED, **ok("c", "d")})
    assert {frozenset(group) for group in groups} in (
        {frozenset("ad"), frozenset("bc")},
        {frozenset("ac"), frozenset("bd")},
    )


def test_who_failed_twice_is_unfit_and_its_partners_are_not() -> None:
    first = {"a": FAILED, "b": FAILED, **ok("c", "d")}
    second = {"a": FAILED, "c": FAILED, **ok("b", "d")}
    assert unfit([first, second]) == {"a": "all-reduce failed"}


def test_who_hangs_is_unfit_and_not_asked_again() -> None:
    first = {"a": GONE, "b": FAILED}
    assert crossed(first) == [("b",)]
    assert unfit([first, ok("b")]) == {"a": "no answer"}


def test_a_good_first_round_is_enough() -> None:
    assert not again(ok("a", "b"))
    assert unfit([ok("a", "b")]) == {}
