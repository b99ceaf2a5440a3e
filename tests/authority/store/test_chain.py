"""What leads from one record to another, and which of two lines counts."""

import itertools
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from authority.any_run import A, C
from authority.store.store_run import after, begun, genesis
from folkmoot.authority.store.chain import KEPT, Chain, Unlinked
from folkmoot.authority.store.record import SPAN, Invalid, Place
from folkmoot.core.coordinator import messages as m

OF = genesis()
FIRST = begun(OF)


def line(first: Place, length: int, delay: int = 1) -> list[Place]:
    """Records that follow, different for another delay."""
    places = [first]
    for _ in range(length):
        at = places[-1]
        slot = at.mailbox.next
        sign = m.HealthCheck(C.public)
        places.append(after(OF, at, at.time + delay, (slot, C, sign), by=A).place)
    return places


def fetch_from(*places: Place) -> Callable[[int], bytes | None]:
    kept = {place.version: place.data for place in places}
    return kept.get


def nothing(version: int) -> bytes | None:
    return None


def test_records_that_were_missed_are_fetched_and_checked() -> None:
    places = line(FIRST, 5)
    chain = Chain(OF, FIRST)
    for step in chain.follow(places[-1].data, fetch_from(*places)):
        chain.add(step)
    assert chain.newest == places[-1]
    assert [place.version for place in chain.since(2)] == [2, 3, 4, 5]


def test_without_a_way_to_it_a_record_counts_for_nothing() -> None:
    places, others = line(FIRST, 5), line(FIRST, 5, delay=2)
    chain = Chain(OF, FIRST)
    for fetch in (nothing, fetch_from(*others)):
        with pytest.raises(Unlinked):
            chain.follow(places[-1].data, fetch)
    with pytest.raises(Invalid, match="not a signed value"):
        chain.follow(places[-1].data, lambda version: b"garbage")
    assert chain.newest == FIRST


def test_a_line_from_another_beginning_leads_nowhere() -> None:
    chain = Chain(OF, line(FIRST, 3)[-1])
    others = line(FIRST, 6, delay=2)
    fetched: list[int] = []

    def fetch(version: int) -> bytes | None:
        fetched.append(version)
        return others[version].data

    with pytest.raises(Unlinked):
        chain.follow(others[-1].data, fetch)
    assert fetched == [5, 4]  # nothing that is older than what is known


def test_what_is_old_is_put_aside_but_for_what_latecomers_need() -> None:
    places = line(FIRST, 3 * SPAN + 5)
    chain = Chain(OF, FIRST)
    for place in places[1:]:
        for step in chain.follow(place.data, nothing):
            chain.add(step)
        assert chain.base.version <= place.version
    assert chain.base.version == 3 * SPAN
    assert chain.since(0)[0].version == 2 * SPAN
    with pytest.raises(Unlinked):
        chain.follow(places[1].data, nothing)
    far = Chain(OF, FIRST)
    with pytest.raises(Unlinked, match="far ahead"):
        far.follow(places[KEPT + 1].data, fetch_from(*places))


FORK = line(FIRST, 2)
LINES = [line(FORK[1], 2, delay=3), line(FORK[2], 2, delay=5), line(FORK[2], 2, delay=7)]


@given(st.permutations(range(3)))
@settings(max_examples=6)
def test_of_lines_that_part_all_come_to_the_same(order: list[int]) -> None:
    everything = {place.version: place.data for place in FORK}
    chain = Chain(OF, FIRST)
    for number in order * 2:
        known = {**everything, **{place.version: place.data for place in LINES[number]}}
        with suppress(Invalid):
            for step in chain.follow(LINES[number][-1].data, known.get):
                chain.add(step)
    longest = [places[-1] for places in LINES if places[-1].version == 4]
    assert chain.newest == min(longest, key=lambda place: place.digest)
    assert [p.version for p in chain.since(0)] == [0, 1, 2, 3, 4]
    for earlier, later in itertools.pairwise(chain.since(0)):
        assert later.record.before == earlier.digest


def test_the_record_that_is_known_is_no_news() -> None:
    places = line(FIRST, 2)
    chain = Chain(OF, FIRST)
    for place in places[1:]:
        chain.add(chain.follow(place.data, nothing)[0])
    with pytest.raises(Invalid, match="is of version 1, and 2 is known"):
        chain.follow(places[1].data, nothing)
