"""A run's time, carried on by those who follow it."""

from authority.store.store_run import Clock
from folkmoot.authority.store.clock import LEAD, TOLERANCE, RunClock


def clock_at(time: int, settled: bool = True) -> tuple[RunClock, Clock]:
    monotonic = Clock()
    clock = RunClock(monotonic)
    clock.begin(time)
    if settled:
        clock.saw(time)
    return clock, monotonic


def test_it_goes_on_by_the_local_monotonic_clock() -> None:
    clock, monotonic = clock_at(500)
    monotonic.now += 2.5
    assert clock.now() == 3000


def test_who_comes_late_follows_the_first_record_it_sees_being_made() -> None:
    clock, _ = clock_at(500, settled=False)
    assert clock.plausible(90_000)
    clock.saw(90_000)
    assert clock.now() == 90_000
    assert not clock.plausible(90_000 + TOLERANCE + 1)


def test_a_record_of_one_who_came_late_sets_it_back() -> None:
    clock, monotonic = clock_at(500)
    monotonic.now += 60
    clock.saw(600)
    assert clock.now() == 600 + LEAD
    assert not clock.plausible(600 + TOLERANCE + 1)


def test_the_way_of_a_record_does_not_slow_it_down() -> None:
    clock, monotonic = clock_at(0)
    for second in range(1, 100):
        monotonic.now += 1.0
        clock.saw(second * 1000 - 300)
        assert clock.now() == second * 1000


def test_those_who_come_at_different_times_agree_after_one_record() -> None:
    """One has followed for long when the others come, and one of them makes the first record."""
    old, monotonic = clock_at(0)
    monotonic.now += 20
    young, late = clock_at(0, settled=False), clock_at(0, settled=False)
    for clock in (young[0], late[0], old):
        clock._monotonic = monotonic
        clock.begin(0) if clock is not old else None
    monotonic.now += 0.5
    made = young[0].now()
    for clock in (young[0], late[0], old):
        clock.saw(made)
    monotonic.now += 1
    for clock in (young[0], late[0]):
        assert clock.plausible(old.now())
        assert abs(old.now() - clock.now()) <= LEAD


def test_one_who_hurries_gains_the_tolerance_once() -> None:
    clock, monotonic = clock_at(0)
    time = 0
    for _ in range(100):
        monotonic.now += 1.0
        while clock.plausible(time + 1):
            time += 1
        clock.saw(time)
    assert 100_000 + TOLERANCE < time <= 101_001 + TOLERANCE


def test_a_clock_that_goes_a_little_faster_is_followed() -> None:
    clock, monotonic = clock_at(0)
    for second in range(1, 100_000, 100):
        monotonic.now += 100
        theirs = round((second + 100) * 1000 * 1.0005)
        assert clock.plausible(theirs)
        clock.saw(theirs)
