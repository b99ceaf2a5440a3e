"""A server and its clients in one process, over a unix socket and over TCP."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from folkmoot.unified.rpc.client import RpcClient
from folkmoot.unified.rpc.connect import connect
from folkmoot.unified.rpc.connection import RpcConnection, RpcPeer
from folkmoot.unified.rpc.directory import AddressBook
from folkmoot.unified.rpc.errors import (
    CallTimeout,
    Overloaded,
    RemoteError,
    RpcError,
    Unauthorised,
    WorkerDied,
)
from folkmoot.unified.rpc.execution import Execution
from folkmoot.unified.rpc.methods import RemoteMethods
from folkmoot.unified.rpc.server import Server

SECRET = b"only this job knows it"
ME = RpcPeer.me("trainer-0", 1)


class Busy(Exception):
    def __init__(self, how: str, much: int) -> None:
        super().__init__(f"{how} {much}")


class Echo:
    def __init__(self) -> None:
        self.release = threading.Event()
        self.entered = threading.Event()

    def methods(self) -> RemoteMethods:
        methods = RemoteMethods("rollout-0")
        for name in ("echo", "fail", "wait", "later", "leave", "odd", "strange"):
            methods.export(name, getattr(self, name))
        methods.export("status", lambda: "RUNNING", inline=True)
        return methods

    def echo(self, *arguments: Any, **keywords: Any) -> Any:
        return arguments, keywords

    def fail(self, message: str) -> None:
        raise ValueError(message)

    def odd(self) -> None:
        raise Busy("very", 3)  # cannot be made again from its arguments

    def strange(self) -> Any:
        return threading.Lock()

    def leave(self) -> None:
        raise SystemExit(3)

    def wait(self) -> str:
        self.entered.set()
        self.release.wait(30)
        return "waited"

    async def later(self, value: int) -> int:
        await asyncio.sleep(0)
        return value + 1


class Place:
    """A server that can be reached, and what stops it."""

    def __init__(self, address: str) -> None:
        self.echo = Echo()
        self.server = Server(RpcPeer.me("rollout-0", 1), self.echo.methods(), SECRET)
        self.address = self.server.listen(address)
        self.book = AddressBook({"rollout-0": self.address})

    def client(self, **options: Any) -> RpcClient:
        return RpcClient("rollout-0", self.book, ME, SECRET, **options)


@pytest.fixture(params=["unix", "tcp"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    address = f"unix:{tmp_path}/rollout-0" if request.param == "unix" else "tcp:127.0.0.1:0"
    made = Place(address)
    yield made
    made.echo.release.set()
    made.server.close()


def test_values_go_and_come_back(place: Place) -> None:
    client = place.client()
    assert client.call("echo", 1, "two", key=[3.0]).result(60) == ((1, "two"), {"key": [3.0]})
    array = np.arange(1_000_000)
    ((back,), _) = client.call("echo", array).result(60)
    assert np.array_equal(back, array)
    assert not np.shares_memory(back, array)


def test_many_calls_are_on_their_way_at_once_and_answered_in_order(place: Place) -> None:
    client = place.client()
    calls = [client.call("echo", n) for n in range(300)]
    assert [call.result(60)[0][0] for call in calls] == list(range(300))


def test_what_was_sent_is_what_was_there_when_it_was_called(place: Place) -> None:
    client = place.client()
    array = np.zeros(3_000_000)
    calls = []
    for n in range(5):
        array[:] = n
        calls.append(client.call("echo", array))
    array[:] = -1
    for n, call in enumerate(calls):
        ((back,), _) = call.result(30)
        assert (back == n).all()


def test_calls_can_be_awaited(place: Place) -> None:
    async def scene() -> list[Any]:
        client = place.client()
        with pytest.raises(RemoteError, match="ValueError: no"):
            await client.call("fail", "no")
        return await asyncio.gather(*(client.call("later", n) for n in range(5)))

    assert asyncio.run(scene()) == [1, 2, 3, 4, 5]


def test_an_error_carries_the_remote_traceback(place: Place) -> None:
    with pytest.raises(RemoteError, match="fail of rollout-0 raised ValueError: broken") as caught:
        place.client().call("fail", "broken").result(60)
    assert caught.value.kind == "ValueError"
    assert "raise ValueError(message)" in caught.value.remote_traceback
    assert "execution.py" not in caught.value.remote_traceback
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_that_cannot_be_made_here_is_told_in_words(place: Place) -> None:
    with pytest.raises(RemoteError, match="odd of rollout-0 raised Busy: very 3") as caught:
        place.client().call("odd").result(60)
    assert caught.value.__cause__ is None


def test_what_cannot_be_pickled_is_an_error_of_the_call_and_no_more(place: Place) -> None:
    client = place.client()
    with pytest.raises(RemoteError, match="cannot pickle"):
        client.call("strange").result(60)
    with pytest.raises(TypeError, match="cannot pickle"):
        client.call("echo", threading.Lock())
    with pytest.raises(RemoteError, match="SystemExit: 3"):
        client.call("leave").result(60)
    assert client.call("echo").result(60) == ((), {})


def test_an_unknown_method_is_told_with_the_nearest(place: Place) -> None:
    with pytest.raises(RemoteError, match=r"no remote method 'ecko' \(did you mean 'echo'\?\)"):
        place.client().call("ecko").result(60)


def test_an_inline_method_answers_while_another_runs(place: Place) -> None:
    client = place.client()
    waiting = client.call("wait")
    place.echo.entered.wait(60)
    assert client.call("status").result(60) == "RUNNING"
    place.echo.release.set()
    assert waiting.result(60) == "waited"


@pytest.mark.parametrize("how", ["deadline", "result"])
def test_a_call_that_hangs_says_where_on_both_sides(place: Place, how: str) -> None:
    client = place.client(timeout=1.0 if how == "deadline" else None)
    client.call("echo").result(60)  # so it is connected
    call = client.call("wait")
    if how == "result":
        place.echo.entered.wait(60)
    with pytest.raises(CallTimeout) as caught:
        call.result(0.2 if how == "result" else None)
    told = str(caught.value)
    there, here = told.split("\n\nHere, ")
    assert told.startswith("wait of rollout-0 (rollout-0 (incarnation 1, process ")
    assert "There, it runs" in there
    assert "this call" in there
    assert "self.release.wait(30)" in there
    assert "call.result(0.2" in here
    assert "waits for wait" in here


def test_a_call_that_waits_for_another_says_for_which(place: Place) -> None:
    client = place.client()
    client.call("wait")
    place.echo.entered.wait(60)
    with pytest.raises(CallTimeout, match="it waits for a thread; what runs is wait"):
        client.request("echo", (), {}, timeout=0.2).result()


def test_calls_to_a_worker_that_dies_fail_at_once_and_name_it(place: Place) -> None:
    client = place.client()
    calls = [client.call("wait") for _ in range(3)]
    place.echo.entered.wait(60)
    place.server.close()
    for call in calls:
        with pytest.raises(
            WorkerDied, match=r"rollout-0 \(incarnation 1, process .*wait was called"
        ):
            call.result(60)
    with pytest.raises(WorkerDied, match="rollout-0 cannot be reached at") as caught:
        client.call("echo").result(60)
    assert caught.value.actor == "rollout-0"
    place.book.set("rollout-0", None)
    with pytest.raises(WorkerDied, match="nobody knows an address"):
        client.call("echo").result(60)


def test_a_worker_that_came_back_elsewhere_is_found(place: Place, tmp_path: Path) -> None:
    client = place.client()
    running = client.call("wait")
    place.echo.entered.wait(60)
    place.server.close()
    with pytest.raises(WorkerDied):  # so the client knows of the death
        running.result(60)
    again = Place(f"unix:{tmp_path}/rollout-0.2")
    place.book.set("rollout-0", again.address)
    assert client.call("later", 1).result(60) == 2
    again.server.close()


def test_with_patience_a_call_waits_until_the_worker_is_back(place: Place, tmp_path: Path) -> None:
    client = place.client(patience=30)
    place.server.close()
    call = client.call("later", 5)
    again = Place(f"unix:{tmp_path}/rollout-0.2")
    place.book.set("rollout-0", again.address)
    assert call.result(60) == 6
    again.server.close()


def test_another_actor_at_the_address_is_not_taken_for_the_one_called(place: Place) -> None:
    place.book.set("rollout-1", place.address)
    client = RpcClient("rollout-1", place.book, ME, SECRET)
    with pytest.raises(Unauthorised, match=r"rollout-0 .* answers where rollout-1 was"):
        client.call("echo").result(60)


def test_who_listens_can_call_who_connected(place: Place) -> None:
    """The master and an actor: one connection, calls in both directions."""
    theirs = RemoteMethods("actor")
    theirs.export("double", lambda x: 2 * x)
    opened: SimpleQueue[RpcConnection] = SimpleQueue()
    closed = threading.Event()
    server = Server(
        RpcPeer.me("master"),
        RemoteMethods("master"),
        SECRET,
        on_open=opened.put,
        on_closed=lambda _: closed.set(),
    )
    line = connect(server.listen("tcp:127.0.0.1:0"), ME, SECRET, execution=Execution(theirs))
    back = opened.get(timeout=60)
    assert back.peer == ME
    assert back.call("double", 21).result(60) == 42
    line.close()
    assert closed.wait(60)
    with pytest.raises(WorkerDied, match="trainer-0"):
        back.call("double", 1).result(60)
    server.close()


def test_a_server_that_closes_with_grace_answers_what_it_has_taken(place: Place) -> None:
    client = place.client()
    calls = [client.call("wait") for _ in range(3)]
    place.echo.entered.wait(60)
    client.call("status").result(60)  # answered as it comes, so the others have been taken
    closing = threading.Thread(target=place.server.close, args=(20,))
    closing.start()
    place.echo.release.set()
    assert [call.result(60) for call in calls] == ["waited"] * 3
    closing.join(60)
    assert not closing.is_alive()


def test_a_client_that_was_closed_says_so(place: Place) -> None:
    client = place.client()
    client.call("echo").result(60)
    client.close()
    with pytest.raises(RpcError):
        client.call("echo").result(60)


def test_more_calls_than_may_wait_are_refused(place: Place) -> None:
    place.server.execution._most_waiting = 3
    client = place.client()
    calls = [client.call("wait") for _ in range(30)]
    with pytest.raises(RemoteError, match="3 calls waiting already") as caught:
        calls[-1].result(60)
    assert isinstance(caught.value.__cause__, Overloaded)
    place.echo.release.set()
    assert calls[0].result(60) == "waited"


def test_a_context_of_the_server_is_the_context_of_its_calls(tmp_path: Path) -> None:
    import contextvars

    who: contextvars.ContextVar[str] = contextvars.ContextVar("who")
    servers: list[Server] = []

    def start(name: str, get: Callable[[], str]) -> None:
        who.set(name)
        methods = RemoteMethods(name)
        methods.export("who", get)
        servers.append(Server(RpcPeer.me(name), methods, SECRET))
        servers[-1].listen(f"unix:{tmp_path}/{name}")

    for name in ("a-0", "b-0"):
        contextvars.copy_context().run(start, name, who.get)
    book = AddressBook({name: f"unix:{tmp_path}/{name}" for name in ("a-0", "b-0")})
    clients = [RpcClient(name, book, ME, SECRET) for name in ("a-0", "b-0")]
    assert [client.call("who").result(60) for client in clients] == ["a-0", "b-0"]
    for server in servers:
        server.close()
