"""The coordinator's side of lines that carry weights.

One thread accepts lines, shakes hands and reads requests, never waiting for anybody; the event loop
is asked whether a request is granted; worker threads move bodies, a bounded number at a time. So
who says nothing, or speaks slowly, holds nobody up: a line that did not introduce itself in time is
closed, one that waits for its owner's next request costs no thread, and when there are too many,
the one that has waited longest goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from folkmoot.federated import wire
from folkmoot.federated.transfer import frames
from folkmoot.federated.transfer.transfers import STALL, Transfer
from folkmoot.federated.wire import RequestRefused

logger = logging.getLogger(__name__)

#: Bodies that move at the same time; the others wait for their turn.
WORKERS = 32
#: Lines that are open at the same time.
LINES = 4096
#: Seconds for the handshake and the first request, and between two requests.
INTRODUCTION = 10.0
IDLE = 600.0

Grant = Callable[[Any], Awaitable[Transfer]]


class _Line:
    """One connection between requests."""

    def __init__(self, connection: socket.socket, due: float) -> None:
        self.socket, self.due = connection, due
        self.shaken = not isinstance(connection, ssl.SSLSocket)
        self.buffer = bytearray()

    def next_request(self) -> Any:
        """A whole request, or None while there is more to come. Never blocks."""
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            if not self.shaken and isinstance(self.socket, ssl.SSLSocket):
                self.socket.do_handshake()
                self.shaken = True
            while count := frames.missing(self.buffer):
                self.buffer += frames.read_some(self.socket, count)
            body, self.buffer = bytes(self.buffer[frames.LENGTH :]), bytearray()
            return frames.decode_frame(wire.TransferRequest, body)
        return None


class WeightsListener:
    """`grant` runs on the event loop: it gives a `Transfer`, or raises `RequestRefused`."""

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext | None, grant: Grant, workers: int = WORKERS
    ) -> None:
        self._tls, self._grant = tls, grant
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=1024)
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        self._loop = asyncio.get_running_loop()
        self._workers = ThreadPoolExecutor(workers, "folkmoot-weights")
        self._selector = selectors.DefaultSelector()
        self._alarm, self._ring = socket.socketpair()
        self._alarm.setblocking(False)
        self._closing = False
        #: Lines whose body has moved, on their way back to the selector.
        self._back: deque[_Line] = deque()
        #: Lines whose request is with the event loop or a worker.
        self._busy: set[_Line] = set()
        self._thread = threading.Thread(target=self._run, name="folkmoot-lines", daemon=True)

    def start(self) -> None:
        self._selector.register(self._socket, selectors.EVENT_READ, None)
        self._selector.register(self._alarm, selectors.EVENT_READ, None)
        self._thread.start()

    def close(self) -> None:
        """End every line and thread."""
        self._closing = True
        self._ring.send(b"!")
        if self._thread.ident is not None:
            self._thread.join()
        for line in list(self._busy):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(line.socket, socket.SHUT_RDWR)
        self._workers.shutdown(cancel_futures=True)
        for line in [*self._lines(), *self._busy, *self._back]:
            line.socket.close()
        self._selector.close()
        for one in (self._socket, self._alarm, self._ring):
            one.close()

    # The thread of lines between requests.

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(1.0):
                if key.fileobj is self._socket:
                    self._accept()
                elif key.fileobj is self._alarm:
                    self._take_back()
                else:
                    self._listen(key.data)
            now = time.monotonic()
            for line in [line for line in self._lines() if line.due < now]:
                self._end(line)

    def _lines(self) -> list[_Line]:
        return [key.data for key in self._selector.get_map().values() if key.data is not None]

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:  # it went away again, or we have no file left: others may leave
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            connection = self._tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        self._park(_Line(connection, time.monotonic() + INTRODUCTION))

    def _park(self, line: _Line) -> None:
        lines = self._lines()
        if len(lines) >= LINES:
            self._end(min(lines, key=lambda one: one.due))
        line.socket.setblocking(False)
        self._selector.register(line.socket, selectors.EVENT_READ, line)

    def _take_back(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._alarm.recv(4096)
        while self._back:
            line = self._back.popleft()
            line.due = time.monotonic() + IDLE
            self._park(line)

    def _listen(self, line: _Line) -> None:
        try:
            request = line.next_request()
        except (OSError, ValueError):  # TLS failed, nonsense was said, or it hung up
            self._end(line)
            return
        if request is None:
            return
        self._selector.unregister(line.socket)
        self._busy.add(line)
        asked = asyncio.run_coroutine_threadsafe(self._ask(request), self._loop)
        asked.add_done_callback(lambda granted: self._hand_over(line, granted))

    async def _ask(self, request: Any) -> Transfer:
        return await self._grant(request)

    def _end(self, line: _Line) -> None:
        self._selector.unregister(line.socket)
        line.socket.close()

    # Worker threads.

    def _hand_over(self, line: _Line, granted: Future[Transfer]) -> None:
        with contextlib.suppress(RuntimeError):  # the workers are being shut down
            self._workers.submit(self._serve, line, granted)

    def _serve(self, line: _Line, granted: Future[Transfer]) -> None:
        try:
            line.socket.settimeout(STALL)
            self._carry(line.socket, granted)
        except OSError as error:
            logger.debug("a line that carries weights broke: %s", error)
            line.socket.close()
        except Exception:
            logger.exception("a line that carries weights failed")
            line.socket.close()
        else:
            self._back.append(line)
            self._ring.send(b".")
        finally:
            self._busy.discard(line)

    def _carry(self, line: socket.socket, granted: Future[Transfer]) -> None:
        try:
            transfer = granted.result()
        except RequestRefused as refused:
            code = refused.code.value[0]
            answer = wire.TransferAnswer(code=code, reason=refused.reason[:1000])
            line.sendall(frames.encode_frame(answer))
            return
        transfer.carry(line)
