"""Nodes that want to harm who asks them: in front of an honest one, or by hand, byte for byte."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import zstandard
from solders.pubkey import Pubkey
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from authority.any_run import A, join
from authority.solana.localnet_run import connected, knowing
from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.solana import layout
from folkmoot.authority.solana.instructions import PROGRAM_ID, coordinator_address
from folkmoot.authority.solana.localnet.http import serve_connection
from folkmoot.authority.solana.localnet.serve import Localnet, answered, listen
from folkmoot.core.coordinator import messages as m
from folkmoot.host.signing import Identity

Honest = Callable[[], Any]  # asks the honest node
Asked = dict[str, Any]  # the request
Twist = Callable[[Asked, Honest], Any]
Tell = Callable[[ServerConnection], Awaitable[None]]
Raw = Callable[[asyncio.StreamWriter], Awaitable[None]]
DEEP = b"[" * 100_000


class LyingNode:
    """Answers what the node of `net` does, but for what `twist(asked, honest)` makes of it.

    An answer of bytes goes out as it is. `tell` has the sockets of whoever subscribes.
    """

    def __init__(self, net: Localnet, twist: Twist, tell: Tell) -> None:
        self._net, self.twist, self.tell = net, twist, tell
        self.asked: list[str] = []
        self.host, self.port = "", 0

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def on_http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def answer(body: bytes) -> bytes:
            asked = json.loads(body)
            self.asked.append(asked["method"])
            told = self.twist(asked, lambda: answered(body, self._net.methods.call))
            return told if isinstance(told, bytes) else json.dumps(told).encode()

        await serve_connection(reader, writer, answer)

    async def on_websocket(self, socket: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            await self.tell(socket)


async def silent(socket: ServerConnection) -> None:
    """A subscription that says nothing."""
    await socket.wait_closed()


@asynccontextmanager
async def lying(
    net: Localnet, twist: Twist = lambda asked, honest: honest(), tell: Tell = silent
) -> AsyncIterator[LyingNode]:
    node = LyingNode(net, twist, tell)
    http, websocket = await listen(node, "127.0.0.1", 0)
    try:
        yield node
    finally:
        http.close()
        websocket.close()
        await websocket.wait_closed()


def result(told: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": told}


def in_context(slot: int, value: Any) -> dict[str, Any]:
    return result({"context": {"slot": slot}, "value": value})


def only(method: str, lie: Callable[[Honest], Any]) -> Twist:
    """A lie about one method."""
    return lambda asked, honest: lie(honest) if asked["method"] == method else honest()


@asynccontextmanager
async def raw_node(answer: Raw, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The url of who answers every request with what `answer` writes, whatever it is."""

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
        writer.transport.abort()

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0, ssl=tls)
    scheme = "https" if tls else "http"
    try:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def goes_on(net: Localnet, *urls: str) -> None:
    """A client that knows these nodes and then an honest one says something and is heard."""
    identity = Identity.random()
    async with connected(net, identity, *urls) as authority:
        assert await authority.submit(join(identity)) is None
        shown = await anext(authority.watch())
        assert shown.pending.get(identity.public) is not None
        assert await authority.submit(m.Withdraw(identity.public)) is None


async def says(url: str) -> str:
    """What a client that knows this node only says."""
    async with knowing(url, A) as authority, asyncio.timeout(120):
        with pytest.raises((Unreachable, Denied)) as told:
            await authority.submit(join(A))
    said = str(told.value)
    assert said.isprintable()
    assert len(said) < 1000
    return said


def account_told(net: Localnet, data: bytes, owner: Pubkey = PROGRAM_ID) -> Any:
    packed = base64.b64encode(zstandard.compress(data)).decode()
    return in_context(net.ledger.slot, {"owner": str(owner), "data": [packed, "base64+zstd"]})


def true_account(net: Localnet, run_id: str = "moot") -> bytes:
    found = net.ledger.account(coordinator_address(PROGRAM_ID, run_id))
    assert found is not None
    return bytes(found.data)


def with_number(data: bytes, number: int, *path: str) -> bytes:
    """An account with another number in it."""
    kind, at = layout.RUN, 0
    for name in path:
        kind, more, *_ = kind.fields[name]  # type: ignore[index]
        at += more
    return data[:at] + number.to_bytes(kind.itemsize, "little") + data[at + kind.itemsize :]
