"""Listens for other actors, and carries out what those call who know the job's secret."""

import socket
import threading

from folkmoot.unified.rpc.connection import Hook, RpcConnection, RpcPeer, no_hook
from folkmoot.unified.rpc.entrance import Entrance, Seals
from folkmoot.unified.rpc.execution import Execution
from folkmoot.unified.rpc.io_loop import IoLoop, io_loop
from folkmoot.unified.rpc.methods import RemoteMethods


class Server:
    """`methods` are what others may call; `threads` how many calls run at once.

    `on_open` and `on_closed` hear of every peer, in the I/O thread: they must not wait.
    """

    def __init__(
        self,
        me: RpcPeer,
        methods: RemoteMethods,
        secret: bytes,
        *,
        threads: int = 1,
        on_open: Hook = no_hook,
        on_closed: Hook = no_hook,
    ) -> None:
        self.me, self.methods = me, methods
        self.execution = Execution(methods, threads)
        self.connections: set[RpcConnection] = set()
        self._on_open, self._on_closed = on_open, on_closed
        self._loop: IoLoop = io_loop()
        self.entrance = Entrance(self._loop, secret, self._admit)

    def listen(self, address: str) -> str:
        """Let others connect at `unix:/path` or `tcp:host:port`; the address with its real port."""
        return self.entrance.listen(address)

    def close(self, grace: float = 0.0) -> None:
        """Listen no more and end every connection; returns when that is done.

        Calls that were taken are answered first, if that takes no longer than `grace` seconds.
        """
        done = threading.Event()
        if grace:
            self.execution.drain(grace)
        self._loop.soon(lambda: self._close(done))
        if not self._loop.here():
            done.wait()
        self.execution.close()

    def _close(self, done: threading.Event) -> None:
        self.entrance.close()
        for connection in list(self.connections):
            connection._lose("was closed here")
        done.set()

    def _admit(self, stream: socket.socket, seals: Seals) -> None:
        connection = RpcConnection(
            self._loop, stream, self.me, seals, self.execution, self._on_open, self._gone
        )
        self.connections.add(connection)
        connection.begin()

    def _gone(self, connection: RpcConnection) -> None:
        self.connections.discard(connection)
        if connection.peer is not None:
            self._on_closed(connection)
