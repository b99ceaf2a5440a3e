"""Lines that never block: each one's life is a generator, and a thread has many of them.

A life goes on until it has to wait, and then yields what for: `READ`, `WRITE`, `SOON` (others'
turn, then ours), `ANSWER` (until `resume` is called, from whatever thread), or `HELD` (the same,
when that may take long: who hangs up meanwhile is gone at once). So a body that comes slowly costs
no thread, and there are no more threads than cores: a hundred that took turns at the interpreter's
lock spent half of their time on waking each other.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

from folkmoot.federated.model_file.reader import page_aligned
from folkmoot.federated.transfer import frames
from folkmoot.host.tls_socket import TlsSocket

logger = logging.getLogger(__name__)

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
SOON, ANSWER, HELD = 0, -1, -2
#: With these the socket is looked at.
WATCHED = (READ, WRITE, HELD)
Life = Generator[int, None, None]

#: Seconds in which a piece must pass: who is slower than four kilobytes a second loses its line.
STALL = 60.0
#: Seconds between two looks for lines whose time is over.
SWEEP = 1.0


class Line:
    """One connection. What it waits for must come until `due`."""

    def __init__(self, connection: frames.Socket, thread: LineThread) -> None:
        self.socket, self.thread = connection, thread
        self.due = 0.0
        self.life: Life
        self.waits_for = SOON
        #: Whether a body moves, or is about to: then it may be worth another thread.
        self.heavy = False
        self._since = 0
        connection.setblocking(False)

    @property
    def piece(self) -> memoryview:
        """A buffer of its thread: what is in it when a life waits is gone afterwards."""
        return self.thread.piece

    def end(self) -> None:
        self.life.close()
        self.socket.close()

    def allow(self, seconds: float) -> None:
        """Give it so much time from now on."""
        self.due, self._since = time.monotonic() + seconds, 0

    def passed(self, count: int) -> None:
        """So many bytes of a body passed; each piece of them is worth more time."""
        self._since += count
        if self._since >= frames.PIECE:
            self.allow(STALL)

    def handshake(self) -> Life:
        while isinstance(self.socket, TlsSocket):
            try:
                self.socket.do_handshake()
                return
            except ssl.SSLWantReadError:
                yield READ
            except ssl.SSLWantWriteError:
                yield WRITE

    def receive(self, room: memoryview) -> Generator[int, None, int]:
        """Read something, at most what `room` holds."""
        while True:
            try:
                got = self.socket.recv_into(room)
            except (ssl.SSLWantReadError, BlockingIOError):
                yield READ
            except ssl.SSLWantWriteError:
                yield WRITE
            else:
                if got == 0:
                    raise ConnectionResetError("the line was closed")
                return got

    def receive_ready(self, room: memoryview) -> int:
        """Read what is there, at most what `room` holds; nothing when it would have to wait."""
        done, size, read = 0, len(room), self.socket.recv_into
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            while done < size:
                got = read(room[done:])
                if got == 0:
                    raise ConnectionResetError("the line was closed")
                done += got
        return done

    def read_frame(self, kind: Any) -> Generator[int, None, Any]:
        buffer = bytearray()
        while count := frames.missing(buffer):
            got = yield from self.receive(self.piece[:count])
            buffer += self.piece[:got]
        return frames.decode_frame(kind, bytes(buffer[frames.LENGTH :]))

    def send(self, view: Callable[[int], memoryview | bytes], size: int) -> Life:
        """Send `size` bytes: `view(done)` gives the next ones, the same when asked again."""
        done = 0
        while done < size:
            try:
                count = self.socket.send(view(done))
            except (ssl.SSLWantWriteError, BlockingIOError):
                yield WRITE
            except ssl.SSLWantReadError:
                yield READ
            else:
                done += count
                self.passed(count)

    def send_frame(self, message: Any) -> Life:
        frame = frames.encode_frame(message)
        yield from self.send(lambda done: frame[done:], len(frame))


class LineThread:
    """Lets lines live until they end, break, or take too long; at most `most` of them.

    Of lines whose bodies came together, all but one move to threads that have nothing to do.
    """

    def __init__(self, name: str, most: int, others: Sequence[LineThread] = ()) -> None:
        """`others` may get lines of ours; it may hold ourselves, and grow until the start."""
        self._most, self._others = most, others
        self._selector = selectors.DefaultSelector()
        self._alarm, self._ring = socket.socketpair()
        self._alarm.setblocking(False)
        self._ring.setblocking(False)
        self.piece = page_aligned(frames.PIECE).data
        self._lines: set[Line] = set()
        self._soon: deque[Line] = deque()
        #: Said by other threads: lines whose answer is there, connections that begin.
        self._answered: deque[Line] = deque()
        self._new: deque[tuple[frames.Socket, Callable[[Line], Life]]] = deque()
        self._moved: deque[Line] = deque()
        self._closing = self._rung = self._idle = False
        self._swept = 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._selector.register(self._alarm, READ, self._take_over)

    def start(self) -> None:
        self._thread.start()

    def call_when_readable(self, source: socket.socket, call: Callable[[], None]) -> None:
        """Before `start` alone."""
        self._selector.register(source, READ, call)

    def add(self, connection: frames.Socket, life: Callable[[Line], Life]) -> None:
        """Let this connection's life begin here. From whatever thread."""
        self._new.append((connection, life))
        self._wake()

    def resume(self, line: Line) -> None:
        """What the line waits for is there. From whatever thread."""
        self._answered.append(line)
        self._wake()

    def stop(self) -> None:
        """Do nothing more: first of all, where others may still give us lines."""
        self._closing = True
        self._wake()
        if self._thread.ident is not None:
            self._thread.join()

    def close(self) -> None:
        """End every line of a thread that was stopped."""
        for line in list(self._lines):
            self._end(line)
        for line in self._moved:
            line.end()
        for connection, _ in self._new:
            connection.close()
        self._selector.close()
        self._alarm.close()
        self._ring.close()

    def _wake(self) -> None:
        if self._rung:  # and it has not looked yet
            return
        self._rung = True
        with contextlib.suppress(OSError):  # it is closed
            self._ring.send(b"!")

    # Its own thread.

    def _run(self) -> None:
        while not self._closing:
            self._idle = not self._soon
            ready = self._selector.select(0 if self._soon else SWEEP)
            self._idle = False
            for left, (key, _) in zip(range(len(ready), 0, -1), ready, strict=True):
                if not isinstance(key.data, Line):
                    key.data()
                elif left == 1 or not self._gave_away(key.data):
                    self._go_on(key.data)
            for _ in range(len(self._soon)):
                self._go_on(self._soon.popleft())
            self._sweep()

    def _gave_away(self, line: Line) -> bool:
        """Whether another thread, which had nothing to do, has it now."""
        if not line.heavy or line not in self._lines:
            return False
        other = next((one for one in self._others if one._idle), None)
        if other is None:
            return False
        other._idle = False
        self._forget(line)
        line.thread = other
        other._moved.append(line)
        other._wake()
        return True

    def _take_over(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._alarm.recv(4096)
        # Before we look: what is said after that rings again.
        self._rung = False
        while self._new:
            connection, life = self._new.popleft()
            line = Line(connection, self)
            line.life = life(line)
            self._adopt(line)
        while self._moved:
            line = self._moved.popleft()
            self._adopt(line)
        while self._answered:
            line = self._answered.popleft()
            if line.thread is not self:  # it moved just before it was answered
                line.thread.resume(line)
            elif (
                line in self._lines
                and line.waits_for in (ANSWER, HELD)
                and not (self._answered and self._gave_away(line))
            ):
                self._go_on(line)

    def _adopt(self, line: Line) -> None:
        self._make_room()
        self._lines.add(line)
        self._go_on(line)

    def _go_on(self, line: Line) -> None:
        if line not in self._lines:
            return
        try:
            wanted = next(line.life)
        except (StopIteration, OSError, ValueError) as error:  # it ended, broke, or spoke nonsense
            logger.debug("a line that carries weights ended: %s", error)
            self._end(line)
        except Exception:
            logger.exception("a line that carries weights failed")
            self._end(line)
        else:
            self._wait(line, wanted)

    def _wait(self, line: Line, wanted: int) -> None:
        before, line.waits_for = line.waits_for, wanted
        if wanted == SOON:
            self._soon.append(line)
        if wanted == before:
            return
        if before in WATCHED:
            self._selector.unregister(line.socket)
        if wanted == HELD:  # nothing may come before the answer but a farewell
            self._selector.register(line.socket, READ, lambda: self._end(line))
        elif wanted in WATCHED:
            self._selector.register(line.socket, wanted, line)

    def _make_room(self) -> None:
        """The one that has waited longest for its owner goes; who is at work stays."""
        waiting = [line for line in self._lines if line.waits_for == READ]
        if len(self._lines) >= self._most and waiting:
            self._end(min(waiting, key=lambda one: one.due))

    def _sweep(self) -> None:
        now = time.monotonic()
        if now - self._swept < SWEEP:
            return
        self._swept = now
        for line in [line for line in self._lines if line.due < now and line.waits_for > 0]:
            self._end(line)

    def _end(self, line: Line) -> None:
        self._forget(line)
        line.end()

    def _forget(self, line: Line) -> None:
        if line.waits_for in WATCHED:
            self._selector.unregister(line.socket)
        line.waits_for = SOON
        self._lines.discard(line)
