"""How long a worker that fails again waits."""

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.config import all_broken
from folkmoot.core.job import Backoff


def test_the_first_failure_costs_no_wait_and_each_further_one_doubles_it() -> None:
    waits = [Backoff(first=0.5, most=3.0).wait(failures) for failures in range(1, 7)]
    assert waits == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]


def test_no_wait_is_none() -> None:
    assert Backoff(first=0.0).wait(10**9) == 0.0


@given(st.floats(0.001, 1000), st.floats(0, 1000), st.integers(2, 10**12))
def test_it_never_waits_longer_than_the_most(first: float, more: float, failures: int) -> None:
    policy = Backoff(first=first, most=first + more)
    assert first <= policy.wait(failures) <= policy.most
    assert policy.wait(failures) <= policy.wait(failures + 1)


def test_what_cannot_be_is_refused() -> None:
    told = [broken.reason for broken in all_broken(Backoff(first=5.0, most=1.0, calm=-1.0))]
    assert any("0 to 86,400" in reason for reason in told)
    assert any("less than the 5 seconds" in reason for reason in told)
