"""A run's log in a store: followed, moved and mended, whatever somebody does to the keys."""

import logging
from collections.abc import Callable, Sequence

import pytest

from authority.any_run import OWNER, STRANGER, A, B, C, join, run
from authority.store.store_run import RunInStore
from folkmoot.authority.access import Access
from folkmoot.authority.store import keys
from folkmoot.authority.store.chain import KEPT
from folkmoot.authority.store.create import create_run
from folkmoot.authority.store.kv import StoreError, StoreGone
from folkmoot.authority.store.kv.memory import MemoryStore
from folkmoot.authority.store.letters import HOLE_TIME, UNHURRIED
from folkmoot.authority.store.log import AWAKE, Damaged, Log
from folkmoot.authority.store.mail import write_mail
from folkmoot.authority.store.record import SPAN, Step, first_record
from folkmoot.core.coordinator import Phase
from folkmoot.core.coordinator import messages as m


def awake(held: RunInStore, *logs: Log) -> None:
    """Let them have looked long enough to object."""
    for _ in range(5):
        held.clock.now += AWAKE / 4
        for log in logs:
            log.look()


def sign_of_life(held: RunInStore, log: Log) -> None:
    """One more record: nobody is in a hurry to make it."""
    held.post(A, m.HealthCheck(A.public), log)
    assert log.make(0.0) is None
    held.clock.now += UNHURRIED
    assert log.make(0.0) is not None


def test_a_letter_becomes_a_record_that_others_follow() -> None:
    held = RunInStore()
    a, b = held.log(A), held.log(B)
    slot = held.post(A, join(A), a)
    step = a.make(0.0)
    assert step is not None
    assert step.answers == {slot: None}
    (seen,), skipped = b.look()
    assert not skipped
    assert seen.place == step.place
    assert b.newest == a.newest


def test_who_makes_a_record_hears_of_it_though_the_store_goes_before_the_snapshot_is_kept() -> None:
    held = RunInStore(min_clients=9)
    a = held.log(A)
    held.post(A, join(A), a)
    a.make(0.0)
    while a.newest.version < SPAN - 1:
        sign_of_life(held, a)
    slot = held.post(B, join(B), a)
    told: list[Step] = []

    def tell(step: Step) -> None:
        told.append(step)
        a.store.close()

    with pytest.raises(StoreError, match="closed"):
        a.make(0.0, tell)
    assert [step.answers for step in told] == [{slot: None}]
    assert held.log(C).newest.version == SPAN


def test_of_two_who_make_a_record_one_wins_and_the_other_follows() -> None:
    held = RunInStore()
    a, b = held.log(A), held.log(B)
    held.post(A, join(A), a)
    assert a.make(0.0) is not None
    assert b.make(0.0) is None
    b.look()
    assert b.newest == a.newest
    assert b.make(0.0) is None  # nothing is left to do


def test_signs_of_life_wait_for_company() -> None:
    held = RunInStore()
    a = held.log(A)
    held.post(A, join(A), a)
    a.make(0.0)
    held.post(A, m.HealthCheck(A.public), a)
    assert a.make(0.0) is None
    held.post(B, join(B), a)
    step = a.make(0.0)
    assert step is not None
    assert len(step.answers) == 2
    held.post(A, m.HealthCheck(A.public), a)
    assert a.make(0.0) is None
    held.clock.now += UNHURRIED
    assert a.make(0.0) is not None


def test_a_hole_holds_up_nobody_and_is_given_up() -> None:
    held = RunInStore()
    a = held.log(A)
    hole = held.store().add(keys.CLAIMED, 1)
    held.post(A, join(A), a)
    step = a.make(0.0)
    assert step is not None
    assert a.newest.mailbox.holes == (hole,)
    assert a.make(0.0) is None
    held.clock.now += HOLE_TIME
    gave_up = a.make(0.0)
    assert gave_up is not None
    assert gave_up.place.record.given_up == (hole,)
    assert a.newest.mailbox.holes == ()


def test_a_letter_that_comes_into_a_hole_in_time_is_taken() -> None:
    held = RunInStore()
    a = held.log(A)
    hole = held.store().add(keys.CLAIMED, 1)
    held.post(A, join(A), a)
    a.make(0.0)
    held.store().set(keys.letter(hole), write_mail(B, held.genesis, hole, join(B)))
    step = a.make(0.0)
    assert step is not None
    assert step.answers == {hole: None}


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
    step = a.make(0.0)
    assert step is not None
    assert step.answers == {good: None}
    assert step.place.record.given_up == tuple(range(1, len(bad) + 1))
    assert held.log(B).newest == step.place


@pytest.mark.parametrize("value", [b"garbage", b"0", b"7", b"999999999999999999", b"-3", b"9" * 40])
def test_a_counter_that_somebody_spoiled_is_set_right(value: bytes) -> None:
    held = RunInStore(min_clients=9)
    a = held.log(A)
    for who in (A, B):
        held.post(who, join(who), a)
    a.make(0.0)
    held.store().set(keys.CLAIMED, value)
    for _ in range(2):
        slot = held.post(C, join(C), a)
        step = a.make(0.0)
        assert step is not None
        assert step.answers == {slot: None}
    assert len(a.newest.state.pending) == 3


def test_a_slot_that_somebody_filled_is_left_to_them() -> None:
    held = RunInStore()
    a = held.log(A)
    held.store().set(keys.letter(1), b"mine")
    assert held.post(A, join(A), a) == 2
    step = a.make(0.0)
    assert step is not None
    assert step.answers == {2: None}


# The register.


def garbage(held: RunInStore, log: Log) -> None:
    held.store().set(keys.RECORD, b"garbage")


def deleted(held: RunInStore, log: Log) -> None:
    held.store().delete(keys.RECORD)


def set_back(held: RunInStore, log: Log) -> None:
    held.store().set(keys.RECORD, held.store().get(keys.ready(1)) or b"")


def first_again(held: RunInStore, log: Log) -> None:
    held.store().set(keys.RECORD, first_record(held.genesis, STRANGER).data)


def emptied(held: RunInStore, log: Log) -> None:
    store = held.store()
    store._space.values.clear()


@pytest.mark.parametrize("spoil", [garbage, deleted, set_back, first_again, emptied])
def test_a_spoiled_register_is_put_right_and_told_of_once(
    spoil: Callable[[RunInStore, Log], None], caplog: pytest.LogCaptureFixture
) -> None:
    held = RunInStore(min_clients=9)
    a, b = held.log(A), held.log(B)
    for who in (A, B, C):
        held.post(who, join(who), a)
        a.make(0.0)
        b.look()
    awake(held, a, b)
    newest = a.newest
    spoil(held, a)
    with caplog.at_level(logging.WARNING):
        for log in (b, a, b, a):
            assert log.look() == ([], False)
    assert a.newest == b.newest == newest
    assert held.log(STRANGER).newest == newest  # and whoever comes finds all it needs
    told = [r for r in caplog.records if "put back" in r.getMessage()]
    assert 1 <= len(told) <= 2
    sign_of_life(held, a)
    (step,), _ = b.look()
    assert step.place == a.newest


def test_a_record_from_the_future_is_put_back_until_it_is_insisted_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = RunInStore(min_clients=9)
    a, b = held.log(A), held.log(B)
    for who in (A, B):
        held.post(who, join(who), a)
        a.make(0.0)
        b.look()
    before = b.newest
    a.clock.begin(before.time + 120_000)
    held.post(C, join(C), a)
    jumped = a.make(0.0)
    assert jumped is not None
    for _ in range(2):
        assert b.look() == ([], False)
        assert b.newest == before
        assert held.store().get(keys.RECORD) == before.data
        held.store().set(keys.RECORD, jumped.place.data)
    (step,), _ = b.look()
    assert step == jumped
    assert "ms ahead of our clock" in caplog.text


def test_an_early_call_does_not_wake_for_ever() -> None:
    held = RunInStore()
    a = held.log(A)
    held.store().set(keys.ready(1), b"garbage")
    assert a.wait(0.0)
    assert a.look() == ([], False)
    assert not a.wait(0.0)
    held.store().set(keys.ready(1), b"garbage")
    held.post(A, join(A), a)
    assert a.make(0.0) is not None
    held.post(B, join(B), a)
    assert a.make(0.0) is not None  # who builds on a record makes it known first
    assert held.log(B).newest == a.newest


def test_old_keys_are_removed_and_latecomers_still_get_in() -> None:
    held = RunInStore(min_clients=9)
    a, sleeper = held.log(A), held.log(B)
    held.post(A, join(A), a)
    a.make(0.0)
    for _ in range(3 * SPAN):
        sign_of_life(held, a)
    assert a.newest.version == 3 * SPAN + 1
    late = held.log(C)
    assert late.newest == a.newest
    assert sleeper.look() == ([], True)
    assert sleeper.newest == a.newest
    left = held.store()._space.values
    for kind in ("ready", "mail", "snapshot"):
        kept = [key for key in left if key.startswith(kind)]
        assert len(kept) <= KEPT + 2, kept


def test_a_run_whose_newest_record_nobody_knows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    held = RunInStore()
    held.store().set(keys.RECORD, b"garbage")
    monkeypatch.setattr("folkmoot.authority.store.log.MENDING", 0.0)
    with pytest.raises(Damaged, match="nobody who knows it mends it"):
        held.log(A)


# A winner that dies between any two of its steps.


class Mortal(MemoryStore):
    """Dies after so many operations."""

    left = 10**9

    def _live(self) -> None:
        if self.left == 0:
            raise StoreGone("killed")
        self.left -= 1

    def get(self, key: str) -> bytes | None:
        self._live()
        return super().get(key)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def set(self, key: str, value: bytes) -> None:
        self._live()
        super().set(key, value)

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes | None:
        self._live()
        return super().compare_set(key, expected, desired)

    def delete(self, key: str) -> bool:
        self._live()
        return super().delete(key)


@pytest.mark.parametrize("before", [2, SPAN - 1, SPAN, 2 * SPAN])
def test_whatever_a_winner_leaves_undone_another_goes_on(before: int) -> None:
    for steps in range(60):
        held = RunInStore(min_clients=9)
        patient = held.log(B)
        held.post(A, join(A), patient)
        patient.make(0.0)
        while patient.newest.version < before:
            sign_of_life(held, patient)
        store = Mortal(held.name)
        winner = held.log(A, store)
        slot = held.post(C, join(C), patient)
        store.left = steps
        try:
            assert winner.make(0.0) is not None
            survived = True
        except StoreGone:
            survived = False
        seen, _ = patient.look()
        made = patient.make(0.0)
        answers = [s.answers for s in (*seen, *([made] if made else []))]
        assert answers == [{slot: None}]
        held.post(B, join(B), patient)
        assert patient.make(0.0) is not None
        assert held.log(STRANGER).newest == patient.newest
        if survived:
            return
    raise AssertionError("a record takes more steps than were tried")


# Creating.


def test_of_two_creators_one_creates_and_the_other_finds() -> None:
    store, access = MemoryStore("two creators"), Access(owners=frozenset({OWNER.public}))
    assert create_run(store, run(), access, OWNER)
    assert not create_run(store, run(), access, OWNER)
    assert not create_run(store, run(), Access(owners=frozenset({A.public})), A)
    with pytest.raises(ValueError, match="another configuration"):
        create_run(store, run(total_steps=5), access, OWNER)
    with pytest.raises(ValueError, match="or allow-list"):
        create_run(store, run(), Access(frozenset({A.public}), access.owners), OWNER)


def test_where_something_else_is_no_run_is_created() -> None:
    store = MemoryStore("something else")
    store.set(keys.GENESIS, b"something else")
    with pytest.raises(ValueError, match="another run_id or another store"):
        create_run(store, run(), Access(), OWNER)


def test_a_creator_that_dies_half_way_is_finished_by_whoever_comes() -> None:
    held = RunInStore()
    for key in (keys.RECORD, keys.ready(0)):
        held.store().delete(key)
    a = held.log(A)
    assert a.newest.version == 0
    assert a.newest.state.phase is Phase.WaitingForMembers
    assert not create_run(held.store(), held.run, Access(owners=frozenset({OWNER.public})), OWNER)
