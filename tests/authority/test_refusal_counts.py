"""Who may be wrong how often."""

from authority.store.store_run import Clock
from folkmoot.authority.server import refusal_counts
from folkmoot.authority.server.refusal_counts import RefusalCounts


def test_a_connection_may_be_wrong_a_few_times_and_is_forgiven() -> None:
    clock = Clock()
    seen = RefusalCounts(clock)
    for _ in range(32):
        seen.bad("a:1", "a")
    assert not seen.must_wait("a:1", "a")
    seen.bad("a:1", "a")
    assert seen.must_wait("a:1", "a")
    assert not seen.must_wait("a:2", "a"), "its neighbour did nothing"
    clock.now += 2.0
    assert not seen.must_wait("a:1", "a")


def test_connecting_anew_does_not_help_and_does_not_hurt_good_neighbours() -> None:
    seen = RefusalCounts(Clock())
    seen.good("a:0")
    for connection in range(1, 300):
        for _ in range(20):
            seen.bad(f"a:{connection}", "a")
    assert seen.must_wait("a:301", "a")
    assert not seen.must_wait("a:0", "a")
    assert not seen.must_wait("b:1", "b")


def test_what_is_remembered_is_bounded() -> None:
    seen = RefusalCounts(Clock())
    for number in range(refusal_counts.REMEMBERED + 100):
        seen.bad(f"a:{number}", str(number))
        seen.good(f"a:{number}")
    for kept in (seen._connections._of, seen._addresses._of, seen._proven):
        assert len(kept) == refusal_counts.REMEMBERED
