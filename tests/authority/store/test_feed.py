"""What a client hears from a store that tells, and when it looks for itself."""

import pytest

from folkmoot.authority.store import feed as feed_module
from folkmoot.authority.store import keys
from folkmoot.authority.store.feed import WatchingFeed
from folkmoot.authority.store.kv import Change
from folkmoot.authority.store.kv.memory import MemoryStore


class Told:
    """A watch of which the test says what it tells, and a clock that waits as long as asked."""

    def __init__(self, value: bytes) -> None:
        self.value, self.coming = value, list[list[Change] | None]()
        self.begun, self.wanted = 0, False
        self.now = 100.0

    def begin(self) -> bytes | None:
        self.begun += 1
        return self.value

    def numbered(self, wanted: bool) -> None:
        self.wanted = wanted

    def changes(self, seconds: float) -> list[Change] | None:
        if self.coming:
            return self.coming.pop(0)
        self.now += seconds
        return []

    def close(self) -> None: ...


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told(b"1")
    monkeypatch.setattr(feed_module.time, "monotonic", lambda: told.now)
    return told


def begun(told: Told, name: str) -> WatchingFeed:
    """A feed that is whole: the mailbox was read after the watch began."""
    store = MemoryStore(name)
    store.set(keys.RECORD, told.value)
    feed = WatchingFeed(store, told)
    assert feed.register() == told.value
    feed.attend(True)
    assert told.wanted
    assert not feed.whole
    assert feed.wait_for_letter(1, any_news, told.value, 1.0)  # to read it
    feed.read_mailbox()
    assert feed.whole
    return feed


def any_news(slot: int) -> bool:
    return True


def test_letters_and_records_come_by_themselves(told: Told) -> None:
    feed = begun(told, "by themselves")
    told.coming = [[(7, b"letter")]]
    assert feed.wait_for_letter(7, any_news, b"1", 1.0)
    assert feed.last == 7
    assert not feed.wait_for_record(2, b"1", 0.5)
    assert feed.letters() == {7: b"letter"}
    assert feed.letters() == {}
    told.coming = [[(None, b"2")]]
    assert feed.wait_for_record(2, b"1", 1.0)
    assert feed.register() == b"2"
    assert told.begun == 1


def test_a_letter_that_is_no_news_wakes_nobody(told: Told) -> None:
    feed = begun(told, "no news")
    told.coming = [[(7, b"letter")]]
    assert not feed.wait_for_letter(8, lambda slot: slot > 7, b"1", 0.5)


def test_what_came_before_our_own_record_is_not_taken_for_news(told: Told) -> None:
    feed = begun(told, "our own")
    feed.moved(b"3 of ours")
    told.coming = [[(None, b"1 again")], [(None, b"2")], [(None, b"3 of ours")]]
    assert not feed.wait_for_record(4, b"3 of ours", 0.5)
    assert feed.register() == b"3 of ours"
    told.coming = [[(None, b"4")]]
    assert feed.wait_for_record(4, b"3 of ours", 0.5)


def test_a_watch_that_broke_begins_anew_and_the_mailbox_is_read(told: Told) -> None:
    feed = begun(told, "broke")
    told.coming, told.value = [None], b"5"
    assert feed.wait_for_record(2, b"1", 1.0)
    assert not feed.whole
    assert feed.register() == b"5"
    assert told.begun == 2
    assert not feed.whole


def test_who_hears_nothing_for_long_looks_for_himself(told: Told) -> None:
    """A member that hangs tells nothing; the store, at another, knows more."""
    feed = begun(told, "silence")
    told.now += feed_module.SILENCE + 1
    assert feed.register() == b"1"
    assert told.begun == 1
    assert not feed.whole
    MemoryStore("silence").set(keys.RECORD, b"2")
    told.value = b"2"
    assert feed.register() == b"1"  # looked a moment ago
    told.now += feed_module.SILENCE + 1
    assert feed.register() == b"2"
    assert told.begun == 2


def test_who_no_longer_waits_for_letters_forgets_them(told: Told) -> None:
    feed = begun(told, "no longer")
    told.coming = [[(7, b"letter")]]
    assert feed.wait_for_letter(7, any_news, b"1", 1.0)
    feed.attend(False)
    assert not told.wanted
    assert feed.letters() == {}
    told.coming = [[(8, b"letter")]]
    assert not feed.wait_for_record(2, b"1", 0.5)
    assert feed.letters() == {}
    assert not feed.whole


def test_our_own_record_is_not_waited_for_on_a_watch_that_began_after_it(told: Told) -> None:
    feed = begun(told, "begun after it")
    feed.moved(b"2 of ours")
    told.coming, told.value = [None], b"3"
    assert feed.wait_for_record(3, b"2 of ours", 0.5)
    assert feed.register() == b"3"
    told.coming = [[(None, b"4")]]
    assert feed.wait_for_record(4, b"3", 0.5)
    assert feed.register() == b"4"


def test_who_waits_for_letters_again_reads_those_that_came_meanwhile(told: Told) -> None:
    feed = begun(told, "again")
    feed.attend(False)
    feed.attend(True)
    assert not feed.whole
    assert feed.wait_for_letter(1, any_news, told.value, 1.0)  # to read it
    feed.read_mailbox()
    assert feed.whole


def test_a_letter_that_is_withdrawn_is_none(told: Told) -> None:
    feed = begun(told, "withdrawn")
    told.coming = [[(7, None)]]
    assert not feed.wait_for_letter(7, any_news, b"1", 0.5)
    assert feed.letters() == {}
