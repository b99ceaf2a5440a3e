"""Calls to one actor, by its name. The connection is made at the first call, and again if it broke.

`call` never waits: while a connection is being made, in a thread of its own, calls gather. A call
is sent at most once, so one that was on its way when the actor died fails and is the caller's to
repeat. A new call asks the directory where the actor is now; with `patience` it waits for it to
come back, without it the call fails at once.
"""

import threading
from typing import Any

from folkmoot.unified.rpc import values
from folkmoot.unified.rpc.call import Call
from folkmoot.unified.rpc.connect import connect
from folkmoot.unified.rpc.connection import RpcConnection, RpcPeer
from folkmoot.unified.rpc.directory import Directory
from folkmoot.unified.rpc.errors import RpcError, WorkerDied
from folkmoot.unified.rpc.handshake import Buffer

Waiting = tuple[Call[Any], list[Buffer]]


class RpcClient:
    def __init__(
        self,
        actor: str,
        directory: Directory,
        me: RpcPeer,
        secret: bytes,
        *,
        timeout: float | None = None,
        patience: float = 0.0,
    ) -> None:
        self.actor = actor
        self.timeout, self.patience = timeout, patience
        self._directory, self._me, self._secret = directory, me, secret
        self._connection: RpcConnection | None = None
        self._waiting: list[Waiting] | None = None  # while a connection is being made
        self._closed = False
        self._lock = threading.Lock()

    def call(self, method: str, *arguments: Any, **keywords: Any) -> Call[Any]:
        return self.request(method, arguments, keywords, self.timeout)

    def request(
        self,
        method: str,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        timeout: float | None = None,
    ) -> Call[Any]:
        return self.send(method, values.dump((arguments, keywords)), timeout)

    def send(self, method: str, parts: list[Buffer], timeout: float | None = None) -> Call[Any]:
        """A call whose arguments are pickled already: for many at once."""
        call: Call[Any] = Call(self.actor, method)
        connection = self._usable()
        if connection is None:
            connection = self._gather(call, parts)
        if connection is not None:
            connection.submit(call, parts)
        if timeout is not None:
            call.limit(timeout)
        return call

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    def _usable(self) -> RpcConnection | None:
        connection = self._connection
        return connection if connection is not None and not connection.closed else None

    def _gather(self, call: Call[Any], parts: list[Buffer]) -> RpcConnection | None:
        """Keep a call until a connection is made; the connection if it just was."""
        with self._lock:
            if (connection := self._usable()) is not None:
                return connection
            if self._closed:
                raise RpcError(f"calls to {self.actor} are closed")
            kept: list[Buffer] = [bytes(part) for part in parts]  # the caller may change its arrays
            if self._waiting is not None:
                self._waiting.append((call, kept))
                return None
            self._waiting = [(call, kept)]
        name = f"rpc connect {self.actor}"
        threading.Thread(target=self._make, name=name, daemon=True).start()
        return None

    def _make(self) -> None:
        try:
            connection = self._reach()
        except BaseException as error:
            with self._lock:
                waiting, self._waiting = self._waiting or [], None
            for call, _ in waiting:
                call.fail(error)
            return
        while True:  # in the order of the calls: new ones join the line until it is empty
            with self._lock:
                waiting = self._waiting or []
                if not waiting:
                    self._waiting, self._connection = None, connection
                    if self._closed:
                        connection.close()
                    return
                self._waiting = []
            for call, parts in waiting:
                if not call.done():
                    connection.submit(call, parts)

    def _reach(self) -> RpcConnection:
        """A connection to where the actor is, or is said to have moved."""
        address = self._directory.find(self.actor, wait=self.patience)
        if address is None:
            raise WorkerDied(self.actor, "is not running: nobody knows an address of it")
        try:
            return self._connect(address)
        except RpcError:
            moved = self._directory.find(self.actor, address, self.patience)
            if moved is None:
                raise
            return self._connect(moved)

    def _connect(self, address: str) -> RpcConnection:
        return connect(address, self._me, self._secret, expect=self.actor)
