"""A run's log in a store: followed, moved and mended, whatever somebody does to the keys."""

import logging
from collections.abc import Callable, Sequence

import pytest

from authority.any_run import OWNER, STRANGER, A, B, C, join, run
from authority.store.store_run import RunInStore, Telling, made
from folkmoot.authority.access import Access
from folkmoot.authority.store import keys
from folkmoot.authority.store.chain import KEPT
from folkmoot.authority.store.create import create_run
from folkmoot.authority.store.kv import StoreError, StoreGone
from folkmoot.authority.store.kv.memory import MemoryStore
from folkmoot.authority.store.letters import UNHURRIED
from folkmoot.authority.store.log import AWAKE, Damaged, Log
from folkmoot.authority.store.mail import write_mail
from folkmoot.authority.store.record import MAX_STEP, SPAN, Step, first_record
from folkmoot.core.coordinator import Phase
from folkmoot.core.coordinator import messages as m
from folkmoot.host.signing import Identity


def awake(held: RunInStore, *logs: Log) -> None:
    """Let them have looked long enough to object."""
    for _ in range(5):
        held.clock.now += AWAKE / 4
        for log in logs:
            log.look()


def joined(held: RunInStore, maker: Log, follower: Log, *members: Identity) -> None:
    """They join one after the other; one log makes the records, the other follows."""
    for who in members:
        held.join(maker, who)
        follower.look()


def sign_of_life(held: RunInStore, log: Log) -> None:
    """One more record: nobody is in a hurry to make it."""
    held.post(A, m.HealthCheck(A.public), log)
    assert log.make(0.0) is None
    held.clock.now += UNHURRIED
    made(log)


def test_a_letter_becomes_a_record_that_others_follow() -> None:
    held = RunInStore()
    a, b = held.log(A), held.log(B)
    slot = held.post(A, join(A), a)
    step = made(a)
    assert step.answers == {slot: None}
    (seen,), skipped = b.look()
    assert not skipped
    assert seen.place == step.place
    assert b.newest == a.newest


def test_who_makes_a_record_hears_of_it_though_the_store_goes_before_the_snapshot_is_kept() -> None:
    held = RunInStore(min_clients=9)
    a = held.log(A)
    held.join(a, A)
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
    held.join(a, A)
    assert b.make(0.0) is None
    b.look()
    assert b.newest == a.newest
    assert b.make(0.0) is None  # nothing is left to do


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
    joined(held, a, b, A, B, C)
    awake(held, a, b)
    newest = a.newest
    spoil(held, a)
    with caplog.at_level(logging.WARNING):
        for log in (b, a, b, a):
            assert log.look() == ([], False)
    assert a.newest == b.newest == newest
    assert held.log(STRANGER).newest == newest  # and whoever comes finds all it needs
    assert held.store().get(keys.GENESIS) == held.genesis.data
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
    joined(held, a, b, A, B)
    before = b.newest
    a.clock.begin(before.time + 120_000)
    held.post(C, join(C), a)
    jumped = made(a)
    for _ in range(2):
        assert b.look() == ([], False)
        assert b.newest == before
        assert held.store().get(keys.RECORD) == before.data
        held.store().set(keys.RECORD, jumped.place.data)
    (step,), _ = b.look()
    assert step == jumped
    assert "ms ahead of our clock" in caplog.text


def test_every_record_from_the_future_is_put_back_at_first() -> None:
    held = RunInStore(min_clients=9)
    a, b = held.log(A), held.log(B)
    joined(held, a, b, A, B)
    for _ in range(2):
        before = b.newest
        a.clock.begin(b.clock.now() + 120_000)
        held.join(a, C)
        for _ in range(2):
            assert b.look() == ([], False)
            held.store().set(keys.RECORD, a.newest.data)
        assert b.newest == before
        b.look()
        assert b.newest == a.newest


def test_a_clock_that_is_far_off_makes_records_that_others_can_follow() -> None:
    held = RunInStore(min_clients=9)
    a, b = held.log(A), held.log(B)
    held.join(a, A)
    for wrong, moves in ((a.newest.time + 2 * MAX_STEP, MAX_STEP), (-MAX_STEP, 0)):
        before = a.newest.time
        a.clock.begin(wrong)
        held.post(B, join(B), a)
        step = made(a)
        assert step.place.time == before + moves
    assert held.log(C).newest == a.newest
    for _ in range(3):
        b.look()
        held.store().set(keys.RECORD, a.newest.data)
    assert b.newest == a.newest


def test_a_record_that_was_made_and_lost_from_the_register_counts() -> None:
    held = RunInStore(min_clients=9)
    a, b = held.log(A), held.log(B)
    held.post(A, join(A), a)
    step = a.make(0.0)
    held.store().set(keys.RECORD, b"garbage")
    assert b.look() == ([step], False)
    assert b.newest == a.newest
    assert b.look() == ([], False)
    assert held.store().get(keys.RECORD) == a.newest.data


class Raced(MemoryStore):
    """Somebody is quicker than who writes to the register."""

    quicker: Callable[[], object] | None = None

    def _race(self, key: str) -> None:
        if key == keys.RECORD and self.quicker is not None:
            quicker, self.quicker = self.quicker, None
            quicker()

    def set(self, key: str, value: bytes) -> None:
        self._race(key)
        super().set(key, value)

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes | None:
        self._race(key)
        return super().compare_set(key, expected, desired)


def test_who_mends_a_register_takes_nothing_back_that_was_made_meanwhile() -> None:
    held = RunInStore(min_clients=9)
    store = Raced(held.name)
    a, b = held.log(A), held.log(B, store)
    held.join(a, A)
    b.look()
    held.store().set(keys.RECORD, b"garbage")

    def mended_and_moved() -> None:
        a.look()
        sign_of_life(held, a)

    store.quicker = mended_and_moved
    b.look()
    assert held.store().get(keys.RECORD) == a.newest.data
    b.look()
    assert b.newest == a.newest


def test_a_store_that_lost_a_long_run_is_filled_for_latecomers() -> None:
    held = RunInStore(min_clients=9)
    a = held.log(A)
    held.join(a, A)
    while a.newest.version < SPAN + 2:
        sign_of_life(held, a)
    awake(held, a)
    emptied(held, a)
    assert a.look() == ([], False)
    assert held.log(B).newest == a.newest


def test_who_is_awake_does_not_believe_another_history() -> None:
    """All of it verifies, and it is longer: made by somebody alone, from the genesis on."""
    held = RunInStore(min_clients=9)
    a, store = held.log(A), held.store()
    held.join(a, A)
    values = store._space.values
    before = dict(values)
    for _ in range(SPAN):
        sign_of_life(held, a)
    seen = dict(values)
    values.clear()
    values.update(before)
    liar = held.log(STRANGER)
    while liar.newest.version <= a.newest.version + KEPT:
        sign_of_life(held, liar)
    made = dict(values)
    values.clear()
    values.update(seen)
    awake(held, a)
    newest = a.newest
    values.update(made)
    assert a.look() == ([], False)
    assert a.newest == newest
    assert store.get(keys.RECORD) == newest.data


def test_a_newcomer_does_not_begin_a_run_anew_whose_register_is_gone() -> None:
    held = RunInStore()
    a = held.log(A)
    held.join(a, A)
    held.store().delete(keys.RECORD)
    with pytest.raises(Damaged, match="it is gone"):
        held.log(B)
    assert held.store().get(keys.RECORD) is None
    a.look()
    assert held.log(B).newest == a.newest


def test_an_early_call_does_not_wake_for_ever() -> None:
    held = RunInStore()
    a = held.log(A)
    held.store().set(keys.ready(1), b"garbage")
    assert a.wait(0.0)
    assert a.look() == ([], False)
    assert not a.wait(0.0)
    held.store().set(keys.ready(1), b"garbage")
    held.join(a, A)
    held.join(a, B)  # who builds on a record makes it known first
    assert held.log(B).newest == a.newest


def test_old_keys_are_removed_and_latecomers_still_get_in() -> None:
    held = RunInStore(min_clients=9)
    a, sleeper = held.log(A), held.log(B)
    held.join(a, A)
    for _ in range(3 * SPAN):
        sign_of_life(held, a)
        if a.newest.version == SPAN:
            held.store().set(keys.ready(3), b"garbage")  # it is removed with the others
    assert a.newest.version == 3 * SPAN + 1
    late = held.log(C)
    assert late.newest == a.newest
    assert sleeper.look() == ([], True)
    assert sleeper.newest == a.newest
    left = held.store()._space.values
    for kind in ("ready", "mail", "snapshot"):
        kept = [key for key in left if key.startswith(kind)]
        assert len(kept) <= KEPT + 2, kept
    while a.newest.version < 4 * SPAN:  # up to the next snapshot, which latecomers do not need
        sign_of_life(held, a)
    assert held.log(C).newest == a.newest


def test_a_run_whose_newest_record_nobody_knows_says_so() -> None:
    held = RunInStore()
    held.store().set(keys.RECORD, b"garbage")
    with pytest.raises(Damaged, match="nobody who knows it mends it"):
        held.log(A)


# In a store that tells.


def whole(log: Log) -> None:
    """It is told of letters, and has read those that were there."""
    log.look()
    log.feed.attend(True)
    log.letters.gather(log.feed, log.store, log.newest.mailbox)
    assert log.feed.whole


def test_a_record_of_ours_that_was_not_told_of_yet_is_not_mended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = RunInStore()
    a = held.log(A, Telling(held.name))
    whole(a)
    data = write_mail(A, held.genesis, 1, join(A))
    a.letters.note(a.newest.mailbox, 1, data)
    made(a)
    with caplog.at_level(logging.WARNING):
        assert a.look() == ([], False)
    assert caplog.messages == []


def test_the_last_of_the_letters_that_are_expected_ends_the_wait_for_them() -> None:
    held = RunInStore()
    store = Telling(held.name)
    a = held.log(A, store)
    whole(a)
    store.coming = [(1, b"a letter"), (2, b"another"), (3, b"the last")]
    a.wait_for_letters(3, 60.0)
    assert a.feed.last == 3
    held.post(B, join(B), a)
    b = held.log(B)
    b.wait_for_letters(1, 60.0)  # it is there


def test_who_goes_over_to_another_line_reads_the_mailbox_again() -> None:
    """Letters that were taken in the line it leaves lie there."""
    held = RunInStore(min_clients=9)
    store = Telling(held.name)
    values = store._space.values
    a, b = held.log(A), held.log(B, store)
    before = dict(values)
    held.join(a, A)
    whole(b)
    assert b.newest == a.newest
    values.clear()
    values.update(before)
    other = held.log(C)
    held.join(other, B, C)
    store.coming = [(None, other.newest.data)]
    steps, skipped = b.look()
    assert (len(steps), skipped) == (2, False)
    assert b.newest == other.newest
    assert not b.feed.whole


def test_what_was_mended_is_looked_at_and_not_only_heard_of() -> None:
    held = RunInStore()
    store = Telling(held.name)
    a = held.log(A, store)
    whole(a)
    held.store().set(keys.RECORD, b"garbage")
    store.coming = [(None, b"garbage")]
    assert a.look() == ([], False)
    assert a.feed.register() == a.newest.data


def test_who_begins_anew_reads_the_mailbox_again() -> None:
    held = RunInStore(min_clients=9)
    store = Telling(held.name)
    a, sleeper = held.log(A), held.log(B, store)
    whole(sleeper)
    held.join(a, A)
    while a.newest.version <= KEPT:
        sign_of_life(held, a)
    store.coming = [(None, a.newest.data)]
    assert sleeper.look() == ([], True)
    assert sleeper.newest == a.newest
    assert not sleeper.feed.whole


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
        held.join(patient, A)
        while patient.newest.version < before:
            sign_of_life(held, patient)
        store = Mortal(held.name)
        winner = held.log(A, store)
        slot = held.post(C, join(C), patient)
        store.left = steps
        try:
            made(winner)
            survived = True
        except StoreGone:
            survived = False
        seen, _ = patient.look()
        step = patient.make(0.0)
        answers = [s.answers for s in (*seen, *([step] if step else []))]
        assert answers == [{slot: None}]
        held.join(patient, B)
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
