"""Every store keeps the same promises."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from folkmoot.authority.store.kv import MAX_VALUE, Store, StoreError, Wakeup, WrongType
from folkmoot.authority.store.kv.open import open_store
from folkmoot.authority.store.kv.register import Register


@pytest.fixture
def store(store_url: str, store_prefix: str) -> Iterator[Store]:
    opened = open_store(store_url, store_prefix)
    yield opened
    opened.close()


def test_a_missing_key_reads_as_none_at_once(store: Store) -> None:
    assert store.get("nothing") is None
    assert store.get_many(["nothing", "at all"]) == [None, None]
    assert store.get_many([]) == []


def test_what_was_set_is_read_by_every_connection(store: Store) -> None:
    other = store.clone()
    store.set("key", b"\x00\xff any bytes \n")
    assert other.get("key") == b"\x00\xff any bytes \n"
    store.set("key", b"newer")
    assert other.get_many(["nothing", "key", "nothing"]) == [None, b"newer", None]
    other.close()
    assert store.get("key") == b"newer"


def test_many_keys_are_read_in_their_order(store: Store) -> None:
    keys = [f"key {i}" for i in range(600)]
    for i in range(0, 600, 7):
        store.set(keys[i], b"%d" % i)
    expected = [b"%d" % i if i % 7 == 0 else None for i in range(600)]
    assert store.get_many(keys) == expected


def test_add_counts_from_zero_in_decimal(store: Store) -> None:
    assert store.add("count", 5) == 5
    assert store.add("count", -7) == -2
    assert store.get("count") == b"-2"
    store.set("count", b"41")
    assert store.add("count", 1) == 42


@pytest.mark.parametrize("value", [b"a word", b" 12x", b"1.5", b"9" * 30, b"0x10", b"12 "])
def test_add_to_what_is_no_number_is_refused_and_harms_nothing(store: Store, value: bytes) -> None:
    store.set("word", value)
    with pytest.raises(WrongType, match=r"word.*not a number.*name of its own"):
        store.add("word", 1)
    assert store.get("word") == value


def test_add_does_not_overflow(store: Store) -> None:
    assert store.add("count", 2**63 - 1) == 2**63 - 1
    with pytest.raises(WrongType, match="64 bits"):
        store.add("count", 1)
    with pytest.raises(StoreError, match="64 bits"):
        store.add("count", 2**63)
    assert store.get("count") == b"%d" % (2**63 - 1)


def test_compare_set_creates_only_what_is_missing(store: Store) -> None:
    assert store.compare_set("key", b"", b"first") == b"first"
    assert store.compare_set("key", b"", b"second") == b"first"
    assert store.get("key") == b"first"


def test_compare_set_moves_only_from_the_exact_bytes(store: Store) -> None:
    store.set("key", b"one")
    assert store.compare_set("key", b"on", b"two") == b"one"
    assert store.compare_set("key", b"one", b"two") == b"two"
    assert store.compare_set("key", b"one", b"three") == b"two"
    assert store.compare_set("key", b"two", b"two") == b"two"


def test_compare_set_of_a_missing_key_stores_nothing(store: Store) -> None:
    assert store.compare_set("key", b"old", b"new") is None
    assert store.compare_set("key", b"same", b"same") is None
    assert store.get("key") is None


def test_compare_set_then_set_sets_the_others_if_the_key_is_as_desired(store: Store) -> None:
    assert store.compare_set_then_set("mine", b"", b"1", ["a", "b"], b"x") == b"1"
    assert store.get_many(["mine", "a", "b"]) == [b"1", b"x", b"x"]
    assert store.compare_set_then_set("mine", b"", b"2", ["a"], b"y") == b"1"
    assert store.compare_set_then_set("none", b"1", b"2", ["a"], b"y") is None
    assert store.get_many(["mine", "none", "a"]) == [b"1", None, b"x"]
    # Whoever made it so: who is told of it does not know.
    assert store.compare_set_then_set("mine", b"", b"1", ["a"], b"z") == b"1"
    assert store.get("a") == b"z"
    long = b"x" * 300_000  # etcd is not asked to compare so much
    assert store.compare_set_then_set("mine", b"1", long, ["a"], b"e") == long
    assert store.compare_set_then_set("mine", long, b"3", ["b"], b"f") == b"3"
    assert store.compare_set_then_set("mine", long, b"4", ["b"], b"g") == b"3"
    assert store.get_many(["mine", "a", "b"]) == [b"3", b"e", b"f"]


def test_compare_set_and_append_appends_however_the_comparison_went(store: Store) -> None:
    other = store.clone()
    assert store.compare_set_and_append("mine", b"", b"1", "list", b"a ") == (b"1", b"a ")
    found, notes = other.compare_set_and_append("mine", b"", b"2", "list", b"b ")
    assert (found, sorted(notes.split())) == (b"1", [b"a", b"b"])
    found, notes = other.compare_set_and_append("none", b"1", b"2", "another", b"c ")
    assert (found, notes) == (None, b"c ")
    store.delete_many(["list"])
    assert store.compare_set_and_append("mine", b"1", b"2", "list", b"d ") == (b"2", b"d ")
    found, notes = other.compare_set_and_append("yours", b"", b"1", "another", b"e ")
    assert notes.split()[-1] == b"e"  # what was deleted with one list is of no other
    other.close()


def test_who_appends_at_once_finds_itself_and_the_last_finds_all(store: Store) -> None:
    def arrive(rank: int) -> set[bytes]:
        own = store.clone()
        mine = b"%d " % rank
        found, notes = own.compare_set_and_append(f"slot {rank}", b"", mine, "list", mine)
        own.close()
        assert found == mine
        assert mine in notes
        return set(notes.split())

    with ThreadPoolExecutor(16) as threads:
        seen = list(threads.map(arrive, range(16)))
    assert {b"%d" % rank for rank in range(16)} in seen


def test_append_adds_to_the_end(store: Store) -> None:
    store.append("list", b"0,")
    store.append("list", b"\xff,")
    assert store.get("list") == b"0,\xff,"


def test_delete_says_whether_there_was_something(store: Store) -> None:
    assert store.delete("key") is False
    store.set("key", b"value")
    assert store.delete("key") is True
    assert store.get("key") is None
    assert store.compare_set("key", b"", b"again") == b"again"


def test_many_are_deleted_whether_or_not_they_are_there(store: Store) -> None:
    names = [f"key {i}" for i in range(300)]
    for name in names[::100]:
        store.set(name, b"value")
    store.set("kept", b"value")
    store.delete_many([])
    store.delete_many(names)
    assert store.get_many([*names, "kept"]) == [*[None] * 300, b"value"]


def test_wait_gives_at_once_what_is_there(store: Store) -> None:
    store.set("key", b"value")
    assert store.wait("key", 60) == b"value"
    assert store.wait("key", 0) == b"value"


def test_wait_with_a_wakeup_gives_what_it_is_set_for(store: Store) -> None:
    store.set("value", b"old")
    assert store.wait("wakeup", 0.05, "value") is None
    with ThreadPoolExecutor(1) as thread:
        other = store.clone()
        waiting = thread.submit(other.wait, "wakeup", 60, "value")
        assert store.compare_set_then_set("value", b"old", b"new", ["wakeup"], b"1") == b"new"
        assert waiting.result(60) == b"new"
        other.close()
    store.set("value", b"newer")
    assert store.wait("wakeup", 0, "value") == b"newer"


def test_who_appends_waits_for_a_wakeup_if_that_is_worth_it(store: Store) -> None:
    other = store.clone()
    store.set("value", b"1")
    seen: list[bytes] = []

    def append(expected: bytes, desired: bytes, seconds: float, worth: bool) -> Any:
        def is_worth(notes: bytes) -> bool:
            seen.append(notes)
            return worth

        wakeup = Wakeup(is_worth, "wakeup", seconds, "value")
        return other.compare_set_and_append("mine", expected, desired, "list", b"a,", wakeup)

    found = append(b"", b"1", 0.05, True)
    assert (found[0], found[2]) == (b"1", None)
    nothing = Wakeup(lambda notes: True, "wakeup", 0.05, "")
    assert other.compare_set_and_append("own", b"", b"1", "list", b"a,", nothing)[2] is None
    assert append(b"1", b"2", 60, False)[0] == b"2"
    assert other.get("value") == b"1"
    assert append(b"1", b"3", 60, True)[0] == b"2"  # it did not go well, so nothing is waited for
    assert len(seen) == 2
    assert append(b"2", b"3", 60, False)[0] == b"3"
    store.set("wakeup", b"1")
    assert other.wait("another", 0.05) is None
    assert append(b"3", b"4", 60, False)[0] == b"4"
    assert other.compare_set_then_set("value", b"1", b"2", ["wakeup"], b"1") == b"2"
    assert append(b"4", b"5", 60, True)[::2] == (b"5", b"2")
    assert other.get_many(["mine", "value"]) == [b"5", b"2"]
    other.close()


@pytest.mark.parametrize(("then", "value"), [("value", b"new"), ("", b"")])
def test_a_wakeup_that_is_set_later_ends_the_wait_behind_a_list(
    store: Store, then: str, value: bytes
) -> None:
    with ThreadPoolExecutor(1) as thread:
        other, heard = store.clone(), threading.Event()
        wakeup = Wakeup(lambda notes: not heard.set(), "wakeup", 60, then)
        waiting = thread.submit(
            other.compare_set_and_append, "mine", b"", b"1", "list", b"a,", wakeup
        )
        assert heard.wait(60)
        assert store.compare_set_then_set("value", b"", b"new", ["wakeup"], b"1") == b"new"
        assert waiting.result(60)[::2] == (b"1", value)
        assert other.get("value") == b"new"
        other.close()


def test_many_keys_are_read_with_and_without_missing_ones(store: Store) -> None:
    keys = [f"many {i}" for i in range(300)]
    assert store.get_many(keys) == [None] * 300
    for i, key in enumerate(keys):
        store.set(key, b"%d" % i)
    assert store.get_many(keys) == [b"%d" % i for i in range(300)]
    store.delete("many 7")
    assert store.get_many(keys[:9]) == [*(b"%d" % i for i in range(7)), None, b"8"]


def test_wait_for_nothing_ends_with_none(store: Store) -> None:
    assert store.wait("never", 0) is None
    assert store.wait("never", 0.2) is None
    # The connection is as good as before.
    store.set("never", b"after all")
    assert store.wait("never", 0.2) == b"after all"


WRITES: dict[str, tuple[Callable[[Store], object], bytes]] = {
    "set": (lambda store: store.set("key", b"1"), b"1"),
    "add": (lambda store: store.add("key", 1), b"1"),
    "append": (lambda store: store.append("key", b"1"), b"1"),
    "compare_set": (lambda store: store.compare_set("key", b"", b"1"), b"1"),
}


@pytest.mark.parametrize("write", WRITES)
def test_every_write_wakes_who_waits(store: Store, write: str) -> None:
    act, value = WRITES[write]
    waiting = store.clone()
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(waiting.wait, "key", 60)
        with pytest.raises(TimeoutError):
            result.result(0.1)  # it does wait
        act(store)
        assert result.result(30) == value
    waiting.close()


def test_who_waits_holds_up_nobody(store: Store) -> None:
    waiting = store.clone()
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(waiting.wait, "key", 60)
        for i in range(50):
            store.set("heartbeat", b"%d" % i)
        assert not result.done()
        store.set("key", b"value")
        assert result.result(30) == b"value"
    waiting.close()


def test_only_one_of_many_wins_an_election(store: Store) -> None:
    start = threading.Barrier(8)

    def run(me: int) -> int:
        mine, won = store.clone(), 0
        for n in range(20):
            start.wait()
            record = b"%d by %d" % (n, me)
            won += mine.compare_set(f"elected {n}", b"", record) == record
        mine.close()
        return won

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(run, range(8))) == 20


def test_no_addition_and_no_appended_byte_is_lost(store: Store) -> None:
    def run(me: int) -> list[int]:
        mine = store.clone()
        sums = []
        for _ in range(25):
            sums.append(mine.add("count", 1))
            mine.append("list", b"%d" % me)
        mine.close()
        return sums

    with ThreadPoolExecutor(6) as threads:
        sums = [one for run_sums in threads.map(run, range(6)) for one in run_sums]
    assert sorted(sums) == list(range(1, 151))
    listed = store.get("list") or b""
    assert sorted(listed) == sorted(b"012345" * 25)


def test_the_largest_value_is_kept_and_a_larger_one_refused(store: Store) -> None:
    largest = bytes(range(256)) * (MAX_VALUE // 256)
    store.set("key", largest)
    assert store.get("key") == largest
    changed = largest[:-1] + b"!"
    assert store.compare_set("key", largest, changed) == changed
    for write in (
        lambda: store.set("key", largest + b"!"),
        lambda: store.append("key", b"!"),
        lambda: store.compare_set("key", changed, largest + b"!"),
    ):
        with pytest.raises(WrongType, match="at most 1048576"):
            write()
    assert store.get("key") == changed


def test_an_empty_value_or_key_is_refused(store: Store) -> None:
    for write in (
        lambda: store.set("key", b""),
        lambda: store.append("key", b""),
        lambda: store.compare_set("key", b"", b""),
    ):
        with pytest.raises(StoreError, match="empty"):
            write()
    for key in ("", "k" * 2000):
        with pytest.raises(StoreError, match="1 to 1024 bytes"):
            store.get(key)


def test_keys_of_two_prefixes_do_not_meet(store: Store, store_url: str, store_prefix: str) -> None:
    with_other = open_store(store_url, f"{store_prefix}-other")
    store.set("key", b"mine")
    assert with_other.get("key") is None
    bare = open_store(store_url)
    assert bare.get(f"{store_prefix}/key") == b"mine"
    bare.close()
    with_other.close()


def test_a_closed_connection_says_so(store: Store) -> None:
    other = store.clone()
    other.close()
    with pytest.raises(StoreError, match="closed"):
        other.get("key")
    other.close()


def test_close_ends_what_another_thread_waits_for(store: Store) -> None:
    waiting = store.clone()
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(waiting.wait, "never", 60)
        with pytest.raises(TimeoutError):
            result.result(0.1)
        waiting.close()
        assert isinstance(result.exception(30), StoreError)


def test_a_register_moves_only_from_its_newest_record(store: Store) -> None:
    register = Register(store, "register", "ready")
    assert register.read() is None
    assert register.advance(None, b"1 by a", 1)
    assert not register.advance(None, b"1 by b", 1)
    assert register.advance(b"1 by a", b"2 by b", 2)
    assert not register.advance(b"1 by a", b"2 by a", 2)
    assert register.read() == b"2 by b"
    assert store.get_many(["ready:1", "ready:2"]) == [b"1 by a", b"2 by b"]
    with pytest.raises(ValueError, match="nonce"):
        register.advance(b"2 by b", b"2 by b", 3)


def test_who_moves_a_register_on_writes_the_key_that_a_dead_winner_left_out(store: Store) -> None:
    register = Register(store, "register", "ready")
    assert store.compare_set("register", b"", b"1 by a") == b"1 by a"  # and a dies here
    assert register.advance(b"1 by a", b"2 by b", 2)
    assert store.get_many(["ready:1", "ready:2"]) == [b"1 by a", b"2 by b"]
    assert not register.advance(b"2 by nobody", b"3 by b", 3, published=True)
    assert store.get("ready:3") is None


@pytest.mark.parametrize("size", [100, 200_000, MAX_VALUE])
def test_values_of_any_size_move(store: Store, size: int) -> None:
    first, second, third = (bytes([n]) * size for n in (1, 2, 3))
    assert store.move("key", b"", first, "", "copy 1")
    assert not store.move("key", second, third, "", "copy 2")
    assert store.move("key", first, second, "copy 0", "copy 2")
    assert store.get_many(["key", "copy 0", "copy 1", "copy 2"]) == [second, first, first, second]


def test_a_key_is_created_with_its_number_or_nothing_happens(store: Store) -> None:
    """Stores without transactions do nothing."""

    def made(number: int) -> tuple[str, bytes]:
        return f"numbered {number}", b"value %d" % number

    for near in (1, 1, 3, 1, 9, 0):
        before = int(store.get("count") or b"0")
        number = store.add_and_create("count", near, made)
        if number is None:
            assert int(store.get("count") or b"0") == before
            continue
        assert number == before + 1
        assert store.get("count") == b"%d" % number
        assert store.get(f"numbered {number}") == b"value %d" % number
    after = int(store.get("count") or b"0")
    assert store.get(f"numbered {after + 1}") is None
