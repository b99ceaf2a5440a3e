"""Letters as one client knows them, and how it puts its own into the mailbox."""

from collections.abc import Callable

import pytest

from authority.any_run import A, B, join
from authority.store.store_run import RunInStore, Telling
from folkmoot.authority.store import keys
from folkmoot.authority.store.feed import open_feed
from folkmoot.authority.store.kv.memory import MemoryStore
from folkmoot.authority.store.letters import Letters
from folkmoot.authority.store.mail import write_mail
from folkmoot.authority.store.mailbox import WINDOW, Mailbox
from folkmoot.authority.store.post import Post
from folkmoot.core.coordinator import messages as m


def test_letters_that_are_told_of_are_taken_without_reading_the_mailbox() -> None:
    held = RunInStore()
    store, letters = Telling(held.name), Letters(held.genesis, held.clock)
    feed = open_feed(store)
    feed.register()
    feed.attend(True)
    letters.gather(feed, store, Mailbox())
    assert feed.whole  # it was read
    store.close()
    for slot, who in ((1, A), (2, B)):
        store.coming.append((slot, write_mail(who, held.genesis, slot, join(who))))
        letters.gather(feed, store, Mailbox())
        taken, given_up = letters.for_record()
        assert [(mail.slot, said) for mail, said in taken][-1] == (slot, join(who))
        assert given_up == []


def test_a_letter_is_as_old_as_when_it_was_first_seen() -> None:
    held = RunInStore()
    letters = Letters(held.genesis, held.clock)
    data = write_mail(A, held.genesis, 1, join(A))
    letters.note(Mailbox(), 1, data)
    ripe = letters.ripe_at(0.5)
    held.clock.now += 0.1
    letters.note(Mailbox(), 1, data)
    assert letters.ripe_at(0.5) == ripe


def test_news_is_what_was_not_seen_and_could_be_taken() -> None:
    held, mailbox = RunInStore(), Mailbox(5, (2,))
    letters = Letters(held.genesis, held.clock)
    letters.note(mailbox, 6, write_mail(A, held.genesis, 6, join(A)))
    news = [
        slot
        for slot in (1, 2, 4, 5, 6, 7, 4 + WINDOW, 5 + WINDOW)
        if letters.is_news(mailbox, slot)
    ]
    assert news == [2, 5, 7, 4 + WINDOW]


def test_what_a_record_took_is_worth_no_other() -> None:
    held = RunInStore()
    letters = Letters(held.genesis, held.clock)
    for slot, who in ((1, A), (2, B)):
        letters.note(Mailbox(), slot, write_mail(who, held.genesis, slot, join(who)))
    letters.forget_taken(Mailbox(2))
    assert [mail.slot for mail, _ in letters.for_record()[0]] == [2]
    letters.forget_taken(Mailbox(3))
    assert letters.ripe_at(0.0) is None
    letters.note(Mailbox(3), 2, write_mail(B, held.genesis, 2, join(B)))
    assert letters.ripe_at(0.0) is None


def test_signs_of_life_are_not_among_the_letters_that_are_waited_for() -> None:
    held = RunInStore()
    letters = Letters(held.genesis, held.clock)
    assert letters.last_of(Mailbox(5), 3) == 7
    letters.note(Mailbox(5), 5, write_mail(A, held.genesis, 5, join(A)))
    assert letters.last_of(Mailbox(5), 3) == 7
    letters.note(Mailbox(5), 6, write_mail(A, held.genesis, 6, m.HealthCheck(A.public)))
    assert letters.last_of(Mailbox(5), 3) == 8


class Counted(MemoryStore):
    """Adds and creates in one trip, wherever the counter stands."""

    added = 0  # the long way

    def add(self, key: str, amount: int) -> int:
        self.added += 1
        return super().add(key, amount)

    def add_and_create(
        self, key: str, near: int, made: Callable[[int], tuple[str, bytes]]
    ) -> int | None:
        if int(self.get(key) or b"0") + 1 != near:
            return None
        name, value = made(near)
        self.set(key, b"%d" % near)
        self.set(name, value)
        return near


def test_who_sends_again_before_it_is_told_of_its_letter_claims_the_slot_behind() -> None:
    held = RunInStore()
    store = Counted(held.name)
    post, expected = Post(store, held.genesis, A), list[int]()
    for slot in (1, 2, 3):
        assert post.send(join(A), Mailbox, expected.append, 1)[0] == slot
    assert expected == [1, 2, 3]
    assert store.added == 0


def test_a_slot_that_nobody_would_believe_is_not_taken_in_one_trip_either() -> None:
    held = RunInStore()
    store, far = Counted(held.name), 10**9
    store.set(keys.CLAIMED, b"%d" % far)  # a stranger's, and a letter of his
    slot, _ = Post(store, held.genesis, A).send(join(A), Mailbox, lambda slot: None, far + 1)
    assert slot == 1
    assert store.get(keys.letter(far + 1)) is None


def test_a_message_that_is_too_large_is_refused_before_it_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = RunInStore()
    monkeypatch.setattr("folkmoot.authority.store.post.MAX_MAIL", 10)
    with pytest.raises(ValueError, match="larger than any may be"):
        held.post(A, join(A), held.log(A))
    assert held.store().get(keys.letter(1)) is None


def test_a_letter_that_came_too_late_is_withdrawn_if_the_store_is_there() -> None:
    held = RunInStore()
    store = held.store()
    post = Post(store, held.genesis, A)
    slot, _ = post.send(join(A), Mailbox, lambda slot: None)
    post.withdraw(slot)
    assert store.get(keys.letter(slot)) is None
    store.close()
    post.withdraw(slot)
