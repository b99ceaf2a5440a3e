"""The order in which clients come to make a record."""

from collections import Counter

from msgspec.structs import replace

from authority.any_run import STRANGER, A, B, C, join
from authority.store.store_run import after, begun, genesis
from folkmoot.authority.store.turn import (
    LONGEST_LOOK,
    ROUND_PACE,
    SHORTEST_LOOK,
    expected,
    hold,
    look,
    pace,
    rank,
)
from folkmoot.core.coordinator import Coordinator, Phase
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.state import Left

MEMBERS = [A, B, C]


def three_joined(min_clients: int) -> Coordinator:
    of = genesis(min_clients=min_clients)
    letters = [(slot, who, join(who)) for slot, who in enumerate(MEMBERS, 1)]
    return after(of, begun(of), 0, *letters).place.state


def test_each_has_a_place_of_its_own_and_strangers_come_last() -> None:
    waiting, training = three_joined(4), three_joined(3)
    for state in (waiting, training):
        for version in range(50):
            assert sorted(rank(state, version, who.public) for who in MEMBERS) == [0, 1, 2]
            assert rank(state, version, STRANGER.public) == 3
    assert training.phase is Phase.Warmup


def test_who_left_comes_last_and_leaves_no_gap() -> None:
    state = three_joined(3)
    for place, gone in enumerate(sorted(MEMBERS, key=lambda who: who.public)):
        without = replace(state, epoch=replace(state.epoch, absent=(place,)))
        left = [who for who in MEMBERS if who is not gone]
        for version in range(50):
            assert sorted(rank(without, version, who.public) for who in left) == [0, 1]
            assert rank(without, version, gone.public) == 2


def test_the_work_goes_round() -> None:
    state = three_joined(3)
    first = Counter(
        next(who.public for who in MEMBERS if rank(state, version, who.public) == 0)
        for version in range(300)
    )
    assert min(first.values()) > 60


def test_alone_with_a_run_one_does_not_wait() -> None:
    of = genesis()
    assert rank(begun(of).state, 0, STRANGER.public) == 0
    assert hold(0) == 0.0
    assert hold(1) < hold(2) <= hold(10_000) <= 0.5


def test_letters_gather_for_as_long_as_a_record_takes_but_not_for_long() -> None:
    state = three_joined(3)
    assert 0 < pace(state) == pace(state, pace(state) / 2) < 0.01
    assert pace(state, 0.02) == 0.02
    assert pace(state, 5.0) == 0.1


def test_a_round_is_waited_for_until_its_last_witness_speaks() -> None:
    of = genesis(min_clients=3)
    at = after(of, begun(of), 0, *((slot, who, join(who)) for slot, who in enumerate(MEMBERS, 1)))
    assert expected(at.place.state) == 0  # in Warmup
    letters = [(slot, who, m.Ready(who.public, 0)) for slot, who in enumerate(MEMBERS, 4)]
    state = after(of, at.place, 10, *letters).place.state
    assert state.phase is Phase.RoundTrain
    assert expected(state) == 3
    assert pace(state) == ROUND_PACE
    leaving = replace(state, epoch=replace(state.epoch, leaving=((0, Left.Withdrew),)))
    assert expected(leaving) == 2


def test_who_does_not_wait_for_letters_looks_at_the_mailbox_now_and_then() -> None:
    few = three_joined(3)
    assert SHORTEST_LOOK / 2 <= look(few) <= SHORTEST_LOOK
    client = few.epoch.clients[0]
    many = replace(few, epoch=replace(few.epoch, clients=(client,) * 10_000))
    assert LONGEST_LOOK / 2 <= look(many) <= LONGEST_LOOK
