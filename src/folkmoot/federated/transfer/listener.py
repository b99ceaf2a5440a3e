"""The coordinator's side of lines that carry weights.

Each line lives on one of a few threads that wait for nobody (`lines.py`): it shakes hands, and then
a request is read, the event loop is asked whether it is granted, and its body moves, again and
again. So who says nothing, or speaks slowly, holds nobody up: a line that did not introduce itself
in time is closed, and when there are too many, the one that has waited longest for its owner goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import Any

from OpenSSL import SSL

from folkmoot.federated import wire
from folkmoot.federated.transfer.lines import ANSWER, HELD, STALL, Life, Line, LineThread
from folkmoot.federated.transfer.transfers import SendingAhead, Transfer
from folkmoot.federated.wire import RequestRefused
from folkmoot.host.tls_socket import TlsSocket

#: Bodies are encrypted, hashed and written without the interpreter's lock, which is taken again for
#: each record of 16 KB: more threads would spend more on waking each other than they gain.
THREADS = max(2, min(4, (os.cpu_count() or 1) // 2))
#: Lines that are open at the same time.
LINES = 4096
#: Seconds for the handshake and the first request, and between two requests.
INTRODUCTION = 10.0
IDLE = 600.0

Grant = Callable[[Any, "Asked"], Awaitable[Transfer]]


class WeightsListener:
    """`grant` runs on the event loop: it gives a `Transfer`, or raises `RequestRefused`."""

    def __init__(self, host: str, port: int, tls: SSL.Context | None, grant: Grant) -> None:
        self._tls, self._grant = tls, grant
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=1024)
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        self._loop = asyncio.get_running_loop()
        names = (f"folkmoot-lines-{number}" for number in range(THREADS))
        self._threads: list[LineThread] = []
        for name in names:
            self._threads.append(LineThread(name, LINES // THREADS, self._threads))
        self._threads[0].call_when_readable(self._socket, self._accept)
        self._turns = cycle(self._threads)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End every line and thread."""
        for thread in self._threads:
            thread.stop()
        for thread in self._threads:
            thread.close()
        self._socket.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:  # it went away again, or we have no file left: others may leave
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = connection if self._tls is None else TlsSocket.accept(self._tls, connection)
        next(self._turns).add(line, self._life)

    def _life(self, line: Line) -> Life:
        line.allow(INTRODUCTION)
        yield from line.handshake()
        while True:
            line.heavy = False
            request = yield from line.read_frame(wire.TransferRequest)
            held = request.HasField("call") or request.end.wait_ms > 0
            line.heavy = held or not request.HasField("end")
            asked = Asked(self._loop, self._grant, request, lambda: line.thread.resume(line))
            try:
                while not asked.is_answered:
                    yield HELD if held else ANSWER
                    yield from asked.carry_ahead(line)
            finally:
                asked.close()
            line.allow(STALL)
            try:
                transfer = asked.result()
            except RequestRefused as refused:
                code, reason = refused.code.value[0], refused.reason[:1000]
                yield from line.send_frame(wire.TransferAnswer(code=code, reason=reason))
                if request.store.ahead:  # what comes now is a body that nobody wants
                    return
            else:
                yield from transfer.carry(line)
            line.allow(IDLE)


class Asked:
    """A request that the event loop looks at, for a thread that goes on when `resume` is called.

    `asyncio.run_coroutine_threadsafe` does the same with a second future and two more turns of the
    loop, which is dear beside a small model.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        grant: Grant,
        request: Any,
        resume: Callable[[], None],
    ) -> None:
        self._loop, self._grant, self._request = loop, grant, request
        self._resume, self._closed = resume, False
        self._task: asyncio.Task[Transfer] | None = None
        #: What goes before the answer, until it is carried, and its digest.
        self._ahead: SendingAhead | None = None
        self.digest_ahead = ""
        self._lock = threading.Lock()
        loop.call_soon_threadsafe(self._begin)

    @property
    def is_answered(self) -> bool:
        return self._task is not None and self._task.done()

    def send_ahead(self, model: SendingAhead) -> None:
        """Send this before the answer; once for a request. From whatever thread."""
        with self._lock:
            if self._closed or self.digest_ahead:
                model.close()
                return
            self._ahead, self.digest_ahead = model, model.digest
        self._resume()

    def carry_ahead(self, line: Line) -> Life:
        with self._lock:
            model, self._ahead = self._ahead, None
        if model is not None:
            yield from model.carry(line)

    def result(self) -> Transfer:
        """Once it was answered: what was granted, or `RequestRefused`."""
        assert self._task is not None
        if self._task.cancelled():
            raise ConnectionAbortedError("the coordinator ends")
        return self._task.result()

    def close(self) -> None:
        """Nobody waits for it any more: there is an answer, or the line is gone."""
        with self._lock:
            self._closed = True
            model, self._ahead = self._ahead, None
        if model is not None:
            model.close()
        if not self.is_answered:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and so is all on it
                self._loop.call_soon_threadsafe(self._end)

    # On the loop.

    def _begin(self) -> None:
        if not self._closed:
            self._task = self._loop.create_task(self._granted())
            self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Transfer]) -> None:
        if not task.cancelled():
            task.exception()  # else it is warned of where the line is gone meanwhile
        self._resume()

    async def _granted(self) -> Transfer:
        return await self._grant(self._request, self)

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
