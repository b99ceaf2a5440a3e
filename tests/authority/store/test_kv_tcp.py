"""A TCPStore whose server dies, hangs, comes back empty, or is used by others: real processes."""

import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from folkmoot.authority.store.kv import MAX_VALUE, Store, StoreError, StoreGone, Wakeup, WrongType
from folkmoot.authority.store.kv import tcp_wire as wire
from folkmoot.authority.store.kv.open import open_store, parse_url
from folkmoot.authority.store.kv.tcp import TcpStore
from support.stores import TcpServer

OPERATIONS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get("key"),
    "get_many": lambda store: store.get_many(["key", "other"]),
    "set": lambda store: store.set("key", b"1"),
    "add": lambda store: store.add("count", 1),
    "compare_set": lambda store: store.compare_set("key", b"1", b"2"),
    "compare_set_then_set": lambda store: store.compare_set_then_set(
        "key", b"1", b"2", ["b"], b"1"
    ),
    "compare_set_and_append": lambda store: store.compare_set_and_append("k", b"", b"2", "p", b"1"),
    "append": lambda store: store.append("key", b"1"),
    "wait": lambda store: store.wait("never", 0.2),
    "delete": lambda store: store.delete("key"),
    "clone": lambda store: store.clone(),
}


def connect(url: str, timeout: float = 10.0) -> TcpStore:
    return TcpStore(*parse_url(url).addresses[0], timeout)


@pytest.fixture
def torch_client(tcp_store_url: str) -> TCPStore:
    host, port = parse_url(tcp_store_url).addresses[0]
    return TCPStore(host, port, wait_for_workers=False, timeout=10.0)


def test_a_store_that_hangs_is_noticed_and_used_again_when_it_goes_on(
    own_tcp_store: TcpServer,
) -> None:
    """torch's own client would block in each of these for as long as the server is stopped."""
    stores = {name: connect(own_tcp_store.url, timeout=4.0) for name in OPERATIONS}
    stores["get"].set("key", b"0")
    own_tcp_store.signal(signal.SIGSTOP)
    with ThreadPoolExecutor(len(stores)) as threads:
        asked = [threads.submit(OPERATIONS[name], store) for name, store in stores.items()]
        for answer in asked:
            with pytest.raises(StoreGone, match=r"did not answer for 4 s; it hangs, is overloaded"):
                answer.result()
    own_tcp_store.signal(signal.SIGCONT)
    fresh = open_store(own_tcp_store.url)
    for store in stores.values():
        fresh.set("after", b"1")
        assert store.get("after") == b"1"


def test_a_store_that_came_back_empty_is_reached_again_and_shows_it(
    own_tcp_store: TcpServer,
) -> None:
    store = connect(own_tcp_store.url)
    store.set("key", b"1")
    own_tcp_store.kill()
    with ThreadPoolExecutor(1) as thread:
        opening = thread.submit(open_store, own_tcp_store.url, patience=60)
        own_tcp_store.restart()
        # Who comes while it is still starting waits for it.
        assert opening.result(60).get("key") is None
    # A write is not repeated, since nobody can know whether it happened; the next one is sent anew.
    with pytest.raises(StoreGone):
        store.compare_set("key", b"1", b"2")
    assert store.compare_set("key", b"1", b"2") is None
    assert store.get("key") is None


def test_a_store_that_died_is_noticed_at_once_also_by_who_waits(own_tcp_store: TcpServer) -> None:
    stores = {name: connect(own_tcp_store.url) for name in OPERATIONS}
    store = connect(own_tcp_store.url)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(store.wait, "never", 600)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        own_tcp_store.kill()
        error = waiting.exception(60)
    assert isinstance(error, StoreGone)
    assert "\n" not in str(error)
    for name, store in stores.items():
        with pytest.raises(StoreGone, match=r"is gone.*start it again with `folkmoot store serve`"):
            OPERATIONS[name](store)


def test_a_read_survives_a_connection_that_broke(tcp_store_url: str, store_prefix: str) -> None:
    store, key = connect(tcp_store_url), f"{store_prefix}/word"
    store.set(key, b"word")
    for read in (
        lambda: store.get(key),
        lambda: store.get_many([key])[0],
        lambda: store.wait(key, 5),
    ):
        assert store.connection
        # The server drops who does this.
        store.connection.send(wire.add(key.encode(), 1))
        assert read() == b"word"


def test_a_brief_wait_is_brief(tcp_store_url: str, store_prefix: str) -> None:
    """A time-out of the socket would take 4 to 8 ms here; any may take longer on a busy machine."""
    store = open_store(tcp_store_url, store_prefix)
    took, deadline = 1.0, time.monotonic() + 60
    while took >= 0.004:
        assert time.monotonic() < deadline
        began = time.monotonic()
        assert store.wait("never", 0.001) is None
        took = time.monotonic() - began
    assert took >= 0.001
    store.close()


def test_nobody_at_the_address_is_one_sentence() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        said = rf"no store answers at {url} \(Connection refused\): start one .*store serve"
        with pytest.raises(StoreGone, match=said):
            open_store(url, patience=0.3)
    with pytest.raises(StoreGone, match=r"store\.invalid"):
        open_store("tcp://store.invalid:1", patience=0)


def test_another_kind_of_server_is_recognised() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            one, _ = listening.accept()
            with one:
                one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(StoreGone, match="not a torch TCPStore; check host and port"):
            open_store(url)
        thread.join()


def test_two_threads_on_one_connection_are_told_to_clone(tcp_store_url: str) -> None:
    store = connect(tcp_store_url)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(store.wait, "never", 600)
        while not store.busy.locked():
            time.sleep(0.001)
        with pytest.raises(StoreError, match="give each its clone"):
            store.get("key")
        store.close()
        assert isinstance(waiting.exception(60), StoreError)


def test_torch_sees_the_same_keys(
    tcp_store_url: str, store_prefix: str, torch_client: TCPStore
) -> None:
    store = open_store(tcp_store_url, store_prefix)
    store.set("ours", b"\x00\xff")
    assert torch_client.get(f"{store_prefix}/ours") == b"\x00\xff"
    torch_client.set(f"{store_prefix}/theirs", b"\xff\x00")
    assert store.wait("theirs", 10) == b"\xff\x00"


def test_what_others_put_there_is_refused_not_believed(
    tcp_store_url: str, store_prefix: str, torch_client: TCPStore
) -> None:
    store = open_store(tcp_store_url, store_prefix)
    torch_client.set(f"{store_prefix}/large", b"x" * (MAX_VALUE + 1))
    torch_client.set(f"{store_prefix}/empty", b"")
    torch_client.check([f"{store_prefix}/empty"])
    for read in (lambda: store.get("large"), lambda: store.get_many(["other", "large"])):
        with pytest.raises(WrongType, match=r"large.*1048577 bytes.*at most 1048576"):
            read()
    assert store.get("empty") is None
    assert store.compare_set("empty", b"", b"ours") == b"ours"
    # The connection is as good as before, and the key can be had back.
    assert store.delete("large") is True
    assert store.get("large") is None


def test_the_other_server_of_torch_is_understood() -> None:
    """The one without libuv, which a user's own TCPStore may be."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False)
    store = open_store(f"tcp://127.0.0.1:{server.port}")
    assert store.get_many([f"{i}" for i in range(300)]) == [None] * 300
    assert store.add("count", 3) == 3
    store.append("list", b"1")
    assert store.compare_set("key", b"", b"1") == b"1"
    assert store.wait("never", 0.1) is None
    first, later = (
        Wakeup(lambda listed: False, "wakeup", 60, "k"),
        Wakeup(lambda listed: True, "wakeup", 60, "k"),
    )
    assert store.compare_set_and_append("k", b"", b"1", "p", b"a,", first) == (b"1", b"a,")
    assert store.compare_set_then_set("k", b"1", b"2", ["wakeup"], b"1") == b"2"
    woken = store.compare_set_and_append("k", b"2", b"3", "p", b"b,", later)
    assert woken == (b"3", b"a,b,", b"3")
    many = [f"many {i}" for i in range(9)]
    for key in many:
        store.set(key, b"1")
    assert store.get_many(many) == [b"1"] * 9
    assert store.get_many([*many, "none"]) == [b"1"] * 9 + [None]
    assert store.wait("wakeup", 60, "k") == b"3"
    assert store.get_many(["count", "list", "key", "none"]) == [b"3", b"1", b"1", None]
    store.set("count", b"word")
    with pytest.raises(WrongType):
        store.add("count", 1)
    assert store.delete("count") is True
    store.close()


def test_a_hundred_connect_at_once(tcp_store_url: str, store_prefix: str) -> None:
    def take_part(_: int) -> int:
        store = open_store(tcp_store_url, store_prefix)
        number = store.add("arrived", 1)
        store.close()
        return number

    with ThreadPoolExecutor(100) as threads:
        assert sorted(threads.map(take_part, range(100))) == list(range(1, 101))
