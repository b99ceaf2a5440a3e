"""Serve a ledger as a cluster's node does: JSON-RPC by HTTP, subscriptions by WebSocket.

The WebSocket is one port above, where every client of Solana looks for it.
"""

import asyncio
import contextlib
import errno
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as serve_websocket
from websockets.exceptions import ConnectionClosed

from folkmoot.authority.solana.localnet.http import BODY_MAX, serve_connection
from folkmoot.authority.solana.localnet.ledger import SLOT_SECONDS, LocalLedger, NodeError
from folkmoot.authority.solana.localnet.methods import JsonRpcMethods
from folkmoot.authority.solana.localnet.subscriptions import Subscriber
from folkmoot.host.tasks import end_tasks

PORTS_TRIED = 50
BATCH_MAX = 100


class Localnet:
    """A ledger that is being served."""

    def __init__(self, ledger: LocalLedger, slot_seconds: float = SLOT_SECONDS) -> None:
        self.ledger, self._slot_seconds = ledger, slot_seconds
        self.methods = JsonRpcMethods(ledger)
        self.host, self.port = "", 0
        self.next_slot = asyncio.Event()  # a new one for every slot
        self._subscribers: set[Subscriber] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._sockets: set[ServerConnection] = set()
        ledger.changed = self._changed

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def go_down(self) -> None:
        """Nobody answers from now on, and who was connected is cut off."""
        self.ledger.faults.down = True
        for writer in list(self._writers):
            writer.transport.abort()
        for socket in list(self._sockets):
            socket.transport.abort()

    def come_back(self) -> None:
        self.ledger.faults.down = False

    async def slots(self) -> None:
        """A slot after the other, whatever happens in them."""
        while True:
            await asyncio.sleep(self._slot_seconds)
            self.ledger.next_slot()
            for subscriber in self._subscribers:
                subscriber.slot()
            begun, self.next_slot = self.next_slot, asyncio.Event()
            begun.set()

    def _changed(self, key: Any) -> None:
        for subscriber in self._subscribers:
            subscriber.changed(key)

    async def on_http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.ledger.faults.down:
            writer.transport.abort()
            return
        self._writers.add(writer)

        async def answer(body: bytes) -> bytes:
            return json.dumps(answered(body, self.methods.call)).encode()

        try:
            await serve_connection(reader, writer, answer)
        finally:
            self._writers.discard(writer)

    async def on_websocket(self, socket: ServerConnection) -> None:
        if self.ledger.faults.down:
            socket.transport.abort()
            return
        subscriber = Subscriber(self.methods)
        self._subscribers.add(subscriber)
        self._sockets.add(socket)
        telling = asyncio.create_task(self._tell(socket, subscriber))
        try:
            async for message in socket:
                body = message.encode() if isinstance(message, str) else message
                await socket.send(json.dumps(answered(body, subscriber.call)))
        except ConnectionClosed:
            pass  # it hung up
        finally:
            self._subscribers.discard(subscriber)
            self._sockets.discard(socket)
            await end_tasks([telling])

    async def _tell(self, socket: ServerConnection, subscriber: Subscriber) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await socket.send(json.dumps(await subscriber.told.get()))


def answered(body: bytes, call: Callable[[str, list[Any]], Any]) -> Any:
    """What is answered to a request, or to a list of them."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return _error(None, -32700, "Parse error")
    if isinstance(said, list):
        return [_answer(one, call) for one in said[:BATCH_MAX]]
    return _answer(said, call)


def _answer(said: Any, call: Callable[[str, list[Any]], Any]) -> Any:
    if not isinstance(said, dict) or not isinstance(said.get("method"), str):
        return _error(None, -32600, "Invalid request")
    number, params = said.get("id"), said.get("params") or []
    if not isinstance(params, list):
        return _error(number, -32602, "Invalid params: expected a list")
    try:
        return {"jsonrpc": "2.0", "result": call(said["method"], params), "id": number}
    except NodeError as error:
        return _error(number, error.code, error.message, error.data)


def _error(number: Any, code: int, message: str, data: Any = None) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message}
    return {
        "jsonrpc": "2.0",
        "error": error if data is None else {**error, "data": data},
        "id": number,
    }


async def listen(net: Any, host: str, port: int) -> tuple[asyncio.Server, Server]:
    """Both servers, on two ports in a row."""
    for _ in range(PORTS_TRIED):
        try:
            http = await asyncio.start_server(net.on_http, host, port, limit=BODY_MAX)
        except OSError as error:
            raise OSError(_taken(error, host, port)) from None
        taken = http.sockets[0].getsockname()[1]
        try:
            websocket = await serve_websocket(net.on_websocket, host, taken + 1, max_size=BODY_MAX)
        except (OSError, OverflowError) as error:
            http.close()
            if port:
                raise OSError(_taken(error, host, port + 1)) from None
            continue
        net.host, net.port = host, taken
        return http, websocket
    raise OSError(f"no two free ports in a row on {host}")


def _taken(error: Exception, host: str, port: int) -> str:
    why = (
        "is taken" if getattr(error, "errno", 0) == errno.EADDRINUSE else f"cannot be used: {error}"
    )
    return f"port {port} of {host} {why}; --port names another one, and 0 takes free ones"


@asynccontextmanager
async def serving(
    ledger: LocalLedger | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    slot_seconds: float = SLOT_SECONDS,
) -> AsyncIterator[Localnet]:
    """A localnet at `host`, on `port` and the one above; 0 takes free ones."""
    net = Localnet(ledger or LocalLedger(), slot_seconds)
    http, websocket = await listen(net, host, port)
    moving = asyncio.create_task(net.slots())
    try:
        yield net
    finally:
        await end_tasks([moving])
        net.methods.close()
        websocket.close()
        http.close()
        net.go_down()
        await websocket.wait_closed()
        await http.wait_closed()
