"""etcd loses members, all of them at once for a while, and answers: nothing happens twice."""

import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from folkmoot.authority.store.kv import Change, Store, StoreError, StoreGone, Watch
from folkmoot.authority.store.kv import etcd as etcd_module
from folkmoot.authority.store.kv.etcd_cluster import Cluster, Unanswered
from folkmoot.authority.store.kv.etcd_watch import EtcdWatch
from folkmoot.authority.store.kv.open import open_store, parse_url
from support.certificates import LoopbackAuthority
from support.etcd import ETCD, Etcd


def etcdctl(address: str, *words: str) -> str:
    command = [ETCD.removesuffix("etcd") + "etcdctl", f"--endpoints={address}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def busy(url: str, workers: int) -> Iterator[tuple[list[int], list[list[bytes]]]]:
    """Workers that add, append and elect all the time; what each of them was told."""
    stop, sums, won = threading.Event(), [0] * workers, [list[bytes]() for _ in range(workers)]

    def work(me: int) -> None:
        store, n = open_store(url), 0
        while not stop.is_set():
            store.add("count", 1)
            sums[me] += 1
            n += 1
            store.append("list", b"%d," % me)
            record = b"%d of %d" % (n, me)
            if store.compare_set("elected", store.get("elected") or b"", record) == record:
                won[me].append(record)
        store.close()

    with ThreadPoolExecutor(workers) as threads:
        running = [threads.submit(work, me) for me in range(workers)]
        try:
            yield sums, won
        finally:
            stop.set()
        for one in running:
            one.result(60)


def progress(sums: list[int], by: int) -> None:
    """Until every worker has come this much further."""
    goal, deadline = [one + by for one in sums], time.monotonic() + 60
    while any(now < wanted for now, wanted in zip(sums, goal, strict=True)):
        assert time.monotonic() < deadline, f"stuck at {sums}"
        time.sleep(0.01)


def check(store: Store, sums: list[int]) -> None:
    assert store.get("count") == b"%d" % sum(sums)
    listed = (store.get("list") or b"").split(b",")[:-1]
    assert [listed.count(b"%d" % me) for me in range(len(sums))] == sums


def test_members_that_die_and_come_back_cost_nobody_anything(three_members: Etcd) -> None:
    """The leader dies under real writers that never stop; then all others do, and come back.

    Nobody writes while those are killed, and the leader stays away: an etcd before 3.5.3 that is
    killed while it writes may come back without some of what it had (etcd's issue 13766).
    """
    with busy(three_members.url, 4) as (sums, won):
        progress(sums, 5)
        leader = three_members.leader()
        three_members.kill(leader)
        progress(sums, 5)
    store = open_store(three_members.url)
    check(store, sums)
    assert all(won)
    others = [name for name in three_members.names if name != leader]
    three_members.kill(*others)
    three_members.start(*others)
    check(store, sums)
    store.close()


def test_a_member_that_hangs_is_left_for_another(three_members: Etcd) -> None:
    url = f"{three_members.url}?timeout=6"
    stores = [open_store(url) for _ in range(12)]  # some of them at the member that will hang
    hung = next(name for name in three_members.names if name != three_members.leader())
    three_members.signal(hung, signal.SIGSTOP)
    for store in stores:
        store.add("count", 1)
    three_members.signal(hung, signal.SIGCONT)  # and it delivers what it was sent
    for store in stores:
        store.add("count", 1)
    assert stores[0].get("count") == b"24"
    for store in stores:
        store.close()


def test_without_a_majority_the_message_says_so(three_members: Etcd) -> None:
    store = open_store(f"{three_members.url}?timeout=2")
    store.set("key", b"value")
    three_members.kill(*three_members.names[1:])
    for ask in (
        lambda: store.get("key"),
        lambda: store.set("key", b"new"),
        lambda: store.wait("x", 1),
    ):
        with pytest.raises(StoreGone, match="a majority of etcd's members must run"):
            ask()
    three_members.start(*three_members.names[1:])
    assert store.get("key") in (b"value", b"new")
    store.close()


class LosesAnswers(Cluster):
    """After the request was carried out, or before, as a network does that breaks."""

    lose: list[str]

    def ask_once(self, method: str, request: object, deadline: float) -> object:
        fate = self.lose.pop(0) if self.lose and method == "Txn" else ""
        if fate == "request":
            raise Unanswered("the request was lost")
        answer = super().ask_once(method, request, deadline)
        if fate == "answer":
            raise Unanswered("the answer was lost")
        return answer


def numbered(number: int) -> tuple[str, bytes]:
    return f"numbered:{number}", b"%d" % number


WRITES: dict[str, tuple[Callable[[Store], object], object, bytes | None]] = {
    "set": (lambda s: s.set("key", b"new"), None, b"new"),
    "add": (lambda s: s.add("key", 1), 42, b"42"),
    "append": (lambda s: s.append("key", b"0"), None, b"410"),
    "compare_set": (lambda s: s.compare_set("key", b"41", b"mine"), b"mine", b"mine"),
    "lost compare_set": (lambda s: s.compare_set("key", b"40", b"mine"), b"41", b"41"),
    "delete": (lambda s: s.delete("key"), True, None),
    "move": (lambda s: s.move("key", b"41", b"mine", "before", "after"), True, b"mine"),
    "lost move": (lambda s: s.move("key", b"40", b"mine", "before", "after"), False, b"41"),
    "add_and_create": (lambda s: s.add_and_create("key", 41, numbered), 42, b"42"),
}
FATES = [["answer"], ["request"], ["answer", "answer"], ["request", "answer"], ["answer"] * 3]


@pytest.mark.parametrize("fates", FATES, ids="-".join)
@pytest.mark.parametrize("write", WRITES)
def test_a_write_whose_answer_is_lost_happens_once(
    etcd_url: str, store_prefix: str, write: str, fates: list[str]
) -> None:
    act, result, value = WRITES[write]
    cluster = LosesAnswers(parse_url(etcd_url).addresses, 10.0)
    cluster.lose = []
    own = f"{store_prefix}/.connections/"
    store = etcd_module.EtcdStore(cluster, own, 10.0)
    store.set("key", b"41")
    cluster.lose = list(fates)
    assert act(store) == result
    assert not cluster.lose
    assert store.get("key") == value
    store.delete_many(["key", "before", "after", "numbered:42"])
    store.close()


def test_who_adds_and_creates_needs_to_know_the_number_nearly(
    etcd_url: str, store_prefix: str
) -> None:
    store, other = open_store(etcd_url, store_prefix), open_store(etcd_url, store_prefix)
    assert store.add_and_create("count", 1, numbered) == 1
    assert other.add_and_create("count", 1, numbered) == 2
    assert other.add_and_create("count", 1, numbered) == 3
    assert store.add_and_create("count", 1, numbered) is None  # too far behind
    assert store.add_and_create("count", 5, numbered) is None  # ahead
    store.set("numbered:4", b"a stranger's")
    assert store.add_and_create("count", 3, numbered) is None
    assert store.get("count") == b"3"
    assert store.get("numbered:4") == b"a stranger's"
    store.close()
    other.close()


def test_a_watch_tells_what_happens_and_of_numbered_keys_if_they_are_wanted(
    etcd_url: str, store_prefix: str
) -> None:
    store, other = open_store(etcd_url, store_prefix), open_store(etcd_url, store_prefix)
    watch = store.watch("key", "numbered:")
    assert watch is not None
    assert watch.changes(0.0) is None  # not begun
    store.set("key", b"1")
    assert watch.begin() == b"1"
    other.set("numbered:1", b"unwanted")
    other.set("keys", b"another")
    other.set("key", b"2")
    assert told(watch, 1) == [(None, b"2")]
    watch.numbered(True)
    for name in ("numbered:2", "numbered:x", "numbered:007", "numbered:", "numbered:3"):
        other.set(name, b"letter")
    other.delete("key")
    other.set("key", b"3")
    expected = [(2, b"letter"), (3, b"letter"), (None, None), (None, b"3")]
    assert sorted(told(watch, 4), key=str) == sorted(expected, key=str)
    watch.numbered(False)
    other.set("key", b"4")
    assert told(watch, 1) == [(None, b"4")]
    other.set("numbered:4", b"letter")
    watch.numbered(True)
    other.set("numbered:5", b"letter")
    last: list[Change] = []
    while (5, b"letter") not in last:  # the one before it may come, too, and by itself
        last += told(watch, 1)
    assert set(last) <= {(4, b"letter"), (5, b"letter")}
    watch.close()
    assert watch.changes(0.0) is None
    store.close()
    other.close()


def told(watch: Watch, least: int) -> list[Change]:
    changes: list[Change] = []
    deadline = time.monotonic() + 60
    while len(changes) < least:
        assert time.monotonic() < deadline, changes
        new = watch.changes(1.0)
        assert new is not None
        changes += new
    return changes


class Watched(Cluster):
    """Knows the streams that it opened, and calls `first` before each."""

    def __init__(self, url: str, first: Callable[[], object] = lambda: None) -> None:
        super().__init__(parse_url(url).addresses, 10.0)
        self.first, self.calls = first, list[Any]()

    def open_watch(self, requests: Iterator[Any]) -> Any:
        self.first()
        self.calls.append(super().open_watch(requests))
        return self.calls[-1]


def watch_at(cluster: Cluster, prefix: str) -> EtcdWatch:
    return EtcdWatch(cluster, f"{prefix}/key".encode(), f"{prefix}/numbered:".encode())


def test_what_happens_between_the_read_and_the_watch_is_told(
    etcd_url: str, store_prefix: str
) -> None:
    other = open_store(etcd_url, store_prefix)
    cluster = Watched(etcd_url, lambda: (other.set("numbered:1", b"a"), other.set("key", b"2")))
    watch = watch_at(cluster, store_prefix)
    watch.numbered(True)  # before it begins, too
    assert watch.begin() is None
    assert sorted(told(watch, 2), key=str) == [(1, b"a"), (None, b"2")]
    watch.numbered(False)
    watch.numbered(True)  # the end of the one before is not its own
    other.set("numbered:2", b"b")
    other.set("key", b"3")
    assert sorted(told(watch, 2), key=str) == [(2, b"b"), (None, b"3")]
    watch.close()
    cluster.close()
    other.close()


def test_a_watch_that_begins_anew_or_is_closed_ends_its_stream(
    etcd_url: str, store_prefix: str
) -> None:
    cluster = Watched(etcd_url)
    watch = watch_at(cluster, store_prefix)
    for _ in range(2):
        watch.begin()
    first, second = cluster.calls
    assert not first.is_active()
    assert second.is_active()
    watch.close()
    assert not second.is_active()
    cluster.close()


def test_a_number_that_is_no_slot_is_passed_over(etcd_url: str, store_prefix: str) -> None:
    """However long a name a stranger finds: Python reads no number of 5,000 digits."""
    cluster, other = Watched(etcd_url), open_store(etcd_url, store_prefix)
    watch = watch_at(cluster, store_prefix)
    watch.begin()
    watch.numbered(True)
    address = etcd_url.removeprefix("etcd://")
    etcdctl(address, "put", f"{store_prefix}/numbered:{'9' * 5000}", "letter")
    other.set("numbered:1", b"letter")
    assert told(watch, 1) == [(1, b"letter")]
    etcdctl(address, "del", "--prefix", store_prefix)
    watch.close()
    cluster.close()
    other.close()


@pytest.mark.parametrize("which", ["key", "numbered:1"])
def test_a_watch_of_what_etcd_has_forgotten_is_broken(tmp_path: Path, which: str) -> None:
    """It would tell of nothing, and look like a store in which nothing happens."""
    etcd = Etcd(tmp_path)
    store = open_store(etcd.url, "job")
    try:

        def forget() -> None:
            for number in range(3):
                store.set(which, b"%d" % number)
            revision = etcdctl(etcd.address("member0"), "get", "x", "--write-out=fields")
            newest = re.search(r'"Revision" : (\d+)', revision)
            assert newest is not None
            etcdctl(etcd.address("member0"), "compact", newest[1])

        cluster = Watched(etcd.url)
        watch = watch_at(cluster, "job")
        if which == "key":
            cluster.first = forget
            watch.begin()
        else:
            watch.begin()
            forget()
            watch.numbered(True)
        deadline = time.monotonic() + 60
        while (changes := watch.changes(1.0)) is not None:
            assert changes == []
            assert time.monotonic() < deadline
        cluster.first = lambda: None
        assert watch.begin() == store.get("key")
        assert watch.changes(0.0) == []
        watch.close()
        cluster.close()
    finally:
        store.close()
        etcd.stop()


def test_a_stream_that_its_member_ends_is_broken(etcd_url: str, store_prefix: str) -> None:
    class Ended(Watched):
        def open_watch(self, requests: Iterator[Any]) -> Any:
            super().open_watch(requests).cancel()
            return grpc_call(())

    cluster = Ended(etcd_url)
    watch = watch_at(cluster, store_prefix)
    watch.begin()
    assert watch.changes(60.0) is None
    cluster.close()


def grpc_call(answers: tuple[Any, ...]) -> Any:
    call = mock.MagicMock()
    call.__iter__.side_effect = lambda: iter(answers)
    return call


def test_a_watch_whose_member_dies_begins_anew_at_another(three_members: Etcd) -> None:
    stores = [open_store(three_members.url) for _ in range(6)]  # at different members
    watches = [store.watch("key", "numbered:") for store in stores]
    for watch in watches:
        assert watch is not None
        assert watch.begin() is None
        watch.numbered(True)
    three_members.kill(three_members.leader())
    stores[0].set("key", b"1")
    stores[0].set("numbered:1", b"letter")
    for watch in watches:
        assert watch is not None
        value, letters = None, 0
        deadline = time.monotonic() + 60
        while value is None:
            assert time.monotonic() < deadline
            changes = watch.changes(1.0)
            if changes is None:
                value = watch.begin()
            else:
                value = next((new for number, new in changes if number is None), value)
                letters += sum(number == 1 for number, _ in changes)
        assert value == b"1"
        assert letters <= 1
    for store in stores:
        store.close()


def test_an_old_request_that_arrives_late_changes_nothing(etcd_url: str, store_prefix: str) -> None:
    """As from a member that hung: after we gave it up and wrote through another."""

    class Delays(Cluster):
        late: object = None

        def ask_once(self, method: str, request: object, deadline: float) -> object:
            if method == "Txn" and self.late is None:
                self.late = request
                raise Unanswered("it hangs")
            return super().ask_once(method, request, deadline)

    cluster = Delays(parse_url(etcd_url).addresses, 10.0)
    cluster.late = "not yet"
    store = etcd_module.EtcdStore(cluster, f"{store_prefix}/", 10.0)
    store.set("late key", b"first")
    cluster.late = None
    store.set("late key", b"second")
    store.set("late key", b"third")
    assert cluster.late is not None
    answer = Cluster.ask_once(cluster, "Txn", cluster.late, time.monotonic() + 10)
    assert not answer.succeeded
    assert store.get("late key") == b"third"
    store.delete("late key")
    store.close()


def test_two_threads_that_write_on_one_connection_are_told_to_clone(
    etcd_url: str, store_prefix: str
) -> None:
    asked, go_on = threading.Event(), threading.Event()

    class Slow(Cluster):
        def ask_once(self, method: str, request: object, deadline: float) -> object:
            if method == "Txn":
                asked.set()
                assert go_on.wait(30)
            return super().ask_once(method, request, deadline)

    cluster = Slow(parse_url(etcd_url).addresses, 10.0)
    store = etcd_module.EtcdStore(cluster, f"{store_prefix}/", 10.0)
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(store.add, f"{store_prefix}/count", 1)
        assert asked.wait(30)
        with pytest.raises(StoreError, match="give each its clone"):
            store.set(f"{store_prefix}/key", b"value")
        go_on.set()
        assert writing.result(30) == 1
    store.close()


def test_a_connection_that_is_closed_leaves_nothing_behind(
    etcd_url: str, store_prefix: str
) -> None:
    def keys() -> str:
        return etcdctl(
            etcd_url.removeprefix("etcd://"), "get", "--prefix", "--keys-only", store_prefix
        )

    store = open_store(etcd_url, store_prefix)
    store.set("key", b"value")
    assert ".connections/" in keys()
    store.close()
    assert keys().split() == [f"{store_prefix}/key"]


def test_an_etcd_with_users_wants_a_name_and_a_password(tmp_path: Path) -> None:
    etcd = Etcd(tmp_path)
    try:
        address = etcd.address("member0")
        for words in (
            "user add root:admin",
            "user grant-role root root",
            "role add trainer",
            "role grant-permission trainer readwrite job/ --prefix=true",
            "user add me:p@ss",
            "user grant-role me trainer",
            "auth enable",
        ):
            etcdctl(address, *words.split())
        for url in (f"etcd://{address}", f"etcd://me:wrong@{address}"):
            with pytest.raises(
                StoreError, match=r"user:password@.*who may read and write"
            ) as error:
                open_store(url, "job", patience=5)
            assert "wrong" not in str(error.value)
        with pytest.raises(StoreError, match="may read and write this prefix"):
            open_store(f"etcd://me:p%40ss@{address}", "another", patience=5)
        store = open_store(f"etcd://me:p%40ss@{address}", "job")
        assert store.add("count", 1) == 1
        # An only member answers before it has written (before 3.5.5, its issue 14370); when it
        # answers the next request, it has.
        store.set("behind", b"1")
        # Its tokens do not survive a restart; the connection does.
        etcd.kill("member0")
        etcd.start("member0")
        assert store.add("count", 1) == 2
        store.close()
    finally:
        etcd.stop()


def test_an_etcd_behind_tls_is_trusted_by_its_authority_alone(tmp_path: Path) -> None:
    authority = LoopbackAuthority(tmp_path, "authority")
    server, client = authority.sign("server"), authority.sign("client")
    files = [f"--cert-file={server.cert}", f"--key-file={server.key}"]
    mutual = [f"--trusted-ca-file={authority.file}", "--client-cert-auth"]
    etcd = Etcd(tmp_path / "etcd", tls=[*files, *mutual])
    try:
        url = f"{etcd.url}?ca={authority.file}&timeout=2"
        stranger = LoopbackAuthority(tmp_path, "stranger").file
        for bad in (
            url,
            f"{etcd.url}?ca={stranger}&timeout=2",
            f"etcd://{etcd.address('member0')}",
        ):
            with pytest.raises(StoreGone, match="no member of"):
                open_store(bad, patience=1)
        store = open_store(f"{url}&cert={client.cert}&key={client.key}")
        assert store.add("count", 1) == 1
        assert store.wait("never", 0.1) is None
        store.close()
    finally:
        etcd.stop()
