"""What a log takes from its mailbox, when, and what it passes over."""

import pytest

from authority.any_run import STRANGER, A, B, C, join
from authority.store.store_run import RunInStore, made
from folkmoot.authority.store import keys
from folkmoot.authority.store.letters import HOLE_TIME, SIGNS_AT_ONCE, UNHURRIED
from folkmoot.authority.store.mail import write_mail
from folkmoot.authority.store.mailbox import MAX_HOLES
from folkmoot.core.coordinator import messages as m
from folkmoot.host.signing import Identity


def test_what_others_wait_for_is_not_held_up_by_a_crowd_of_signs_of_life() -> None:
    held = RunInStore()
    a, b = held.log(A), held.log(B)
    crowd = [Identity.random() for _ in range(SIGNS_AT_ONCE + 8)]
    signs = [held.post(each, m.HealthCheck(each.public), a) for each in crowd]
    joined = held.post(A, join(A), a)
    first = made(a)
    assert list(first.answers) == [*signs[:SIGNS_AT_ONCE], joined]
    held.clock.now += UNHURRIED
    rest = made(a)
    assert list(rest.answers) == signs[SIGNS_AT_ONCE:]
    assert rest.place.mailbox.holes == ()
    b.look()
    assert b.newest == rest.place


def test_who_floods_the_mailbox_with_signs_of_life_keeps_out_nobody() -> None:
    held = RunInStore()
    a = held.log(A)
    flood = [held.post(C, m.HealthCheck(C.public), a) for _ in range(MAX_HOLES + 100)]
    late = held.post(B, m.HealthCheck(B.public), a)
    taken: list[int] = []
    held.clock.now += UNHURRIED
    a.make(UNHURRIED)
    held.clock.now += UNHURRIED
    while (step := a.make(0.0)) is not None:
        taken += step.answers
        if len(taken) == len(step.answers):
            assert late in taken
            assert len(taken) < len(flood)
    assert sorted(taken) == [*flood, late]
    assert a.newest.mailbox.holes == ()


def test_signs_of_life_wait_for_company() -> None:
    held = RunInStore()
    a = held.log(A)
    held.join(a, A)
    held.post(A, m.HealthCheck(A.public), a)
    assert a.make(0.0) is None
    held.post(B, join(B), a)
    step = made(a)
    assert len(step.answers) == 2
    held.post(A, m.HealthCheck(A.public), a)
    assert a.make(0.0) is None
    held.clock.now += UNHURRIED
    made(a)


def test_a_hole_holds_up_nobody_and_is_given_up() -> None:
    held = RunInStore()
    a = held.log(A)
    hole = held.store().add(keys.CLAIMED, 1)
    held.join(a, A)
    assert a.newest.mailbox.holes == (hole,)
    assert a.make(0.0) is None
    held.clock.now += HOLE_TIME
    gave_up = made(a)
    assert gave_up.place.record.given_up == (hole,)
    assert a.newest.mailbox.holes == ()


@pytest.mark.parametrize("late", [0.0, HOLE_TIME])
def test_a_letter_that_comes_into_a_hole_in_time_is_taken(late: float) -> None:
    """And at the last moment, when it would be given up."""
    held = RunInStore()
    a = held.log(A)
    hole = held.store().add(keys.CLAIMED, 1)
    held.join(a, A)
    assert a.make(0.0) is None
    held.clock.now += late
    held.store().set(keys.letter(hole), write_mail(B, held.genesis, hole, join(B)))
    step = made(a)
    assert step.answers == {hole: None}


def test_more_holes_than_there_may_be_hold_up_nobody() -> None:
    held = RunInStore()
    a = held.log(A)
    held.store().add(keys.CLAIMED, MAX_HOLES + 1)
    slot = held.post(A, join(A), a)
    step = made(a)
    assert step.answers == {slot: None}
    assert len(a.newest.mailbox.holes) == MAX_HOLES // 2


def test_letters_that_do_not_fit_into_a_record_are_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = RunInStore(min_clients=9)
    a, b = held.log(A), held.log(B)
    slots = [held.post(who, join(who), a) for who in (A, B, C)]
    size = len(held.store().get(keys.letter(slots[0])) or b"")
    monkeypatch.setattr("folkmoot.authority.store.letters.MAX_LETTERS", 2 * size + 1)
    steps = [a.make(0.0), a.make(0.0)]
    assert [list(step.answers) for step in steps if step] == [slots[:2], slots[2:]]
    assert b.look() == (steps, False)


def test_what_is_said_of_others_health_waits_for_nobody() -> None:
    held = RunInStore()
    a = held.log(A)
    crowd = [Identity.random() for _ in range(SIGNS_AT_ONCE + 8)]
    for each in crowd:
        held.post(each, m.HealthCheck(each.public), a)
    slot = held.post(A, m.HealthCheck(A.public, unhealthy=(B.public,)), a)
    step = made(a)
    assert slot in step.answers


def test_what_is_no_letter_is_passed_over() -> None:
    held = RunInStore(allowed=[A, B])
    a = held.log(A)
    store = held.store()
    bad = [
        b"garbage",
        bytes(300_000),
        write_mail(STRANGER, held.genesis, 3, join(STRANGER)),
        write_mail(A, held.genesis, 4, join(B)),
        write_mail(A, held.genesis, 5, m.Pause()),
        write_mail(A, held.genesis, 99, join(A)),
    ]
    for slot, data in enumerate(bad, 1):
        store.set(keys.letter(store.add(keys.CLAIMED, 1)), data)
        assert store.get(keys.letter(slot)) == data
    good = held.post(A, join(A), a)
    step = made(a)
    assert step.answers == {good: None}
    assert step.place.record.given_up == tuple(range(1, len(bad) + 1))
    assert held.log(B).newest == step.place


@pytest.mark.parametrize(
    "value",
    [b"garbage", b"0", b"1", b"7", b"999999999999999999", b"-3", b"9" * 40, b"9" * 5000],
    ids=lambda value: value[:20].decode(),
)
def test_a_counter_that_somebody_spoiled_is_set_right(value: bytes) -> None:
    held = RunInStore(min_clients=9)
    a = held.log(A)
    for who in (A, B):
        held.post(who, join(who), a)
    made(a)
    held.store().set(keys.CLAIMED, value)
    held.store().delete_many([keys.letter(1), keys.letter(2)])  # as they are in time
    for _ in range(2):
        slot = held.post(C, join(C), a)
        step = made(a)
        assert step.answers == {slot: None}
    assert len(a.newest.state.pending) == 3


@pytest.mark.parametrize("value", [b"garbage", b"0", b"9" * 5000], ids=["garbage", "0", "long"])
def test_a_letter_is_found_though_somebody_spoiled_the_counter(value: bytes) -> None:
    held = RunInStore()
    a = held.log(A)
    held.join(a, A)
    slot = held.post(B, join(B), a)
    held.store().set(keys.CLAIMED, value)
    step = made(a)
    assert step.answers == {slot: None}


def test_a_slot_that_somebody_filled_is_left_to_them() -> None:
    held = RunInStore()
    a = held.log(A)
    held.store().set(keys.letter(1), b"mine")
    assert held.post(A, join(A), a) == 2
    step = made(a)
    assert step.answers == {2: None}
