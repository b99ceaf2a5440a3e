"""One thread that reads and writes every socket of the process, and keeps its deadlines.

Callers send from their own thread when the socket takes it at once; everything else happens here.
So nothing in here may wait: user code runs in other threads.
"""

import contextlib
import heapq
import itertools
import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
Action = Callable[[], None]
OnEvents = Callable[[int], None]
log = logging.getLogger(__name__)


class Timer:
    """Something to do later; `cancel()` makes it nothing."""

    __slots__ = ("action", "at")

    def __init__(self, at: float, action: Action) -> None:
        self.at = at
        self.action: Action | None = action

    def cancel(self) -> None:
        self.action = None


class IoLoop:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._hear, self._wake = socket.socketpair()
        self._hear.setblocking(False)
        self._wake.setblocking(False)
        self._soon: deque[Action] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._tidy_at = 1024
        self._lock = threading.Lock()
        self._selector.register(self._hear, READ, self._heard)
        self._thread = threading.Thread(target=self._run, name="rpc io", daemon=True)
        self._thread.start()

    def here(self) -> bool:
        """Whether this is the loop's own thread."""
        return threading.get_ident() == self._thread.ident

    def soon(self, action: Action) -> None:
        """Do it in the loop's thread; from any thread."""
        self._soon.append(action)
        self._awake()

    def after(self, seconds: float, action: Action) -> Timer:
        """Do it in the loop's thread, so much later; from any thread."""
        timer = Timer(time.monotonic() + seconds, action)
        with self._lock:
            if len(self._timers) > self._tidy_at:
                self._forget_cancelled()
            first = not self._timers or timer.at < self._timers[0][0]
            heapq.heappush(self._timers, (timer.at, next(self._numbers), timer))
        if first:
            self._awake()
        return timer

    # The rest is for the loop's own thread.

    def register(self, stream: socket.socket, events: int, on_events: OnEvents) -> None:
        self._selector.register(stream, events, on_events)

    def modify(self, stream: socket.socket, events: int, on_events: OnEvents) -> None:
        self._selector.modify(stream, events, on_events)

    def unregister(self, stream: socket.socket) -> None:
        self._selector.unregister(stream)

    def _awake(self) -> None:
        if not self.here():
            with contextlib.suppress(BlockingIOError):  # enough wake-ups wait already
                self._wake.send(b"\0")

    def _run(self) -> None:
        while True:
            for key, events in self._selector.select(self._patience()):
                _carefully(key.data, events)
            while self._soon:
                _carefully(self._soon.popleft())
            for action in self._due():
                _carefully(action)

    def _heard(self, _: int) -> None:
        self._hear.recv(4096)

    def _patience(self) -> float | None:
        if self._soon:
            return 0.0
        with self._lock:
            return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _due(self) -> list[Action]:
        due = []
        now = time.monotonic()
        with self._lock:
            while self._timers and self._timers[0][0] <= now:
                action = heapq.heappop(self._timers)[2].action
                if action is not None:
                    due.append(action)
        return due

    def _forget_cancelled(self) -> None:
        """Most calls end long before their deadline; what they left is dropped now and then."""
        self._timers = [entry for entry in self._timers if entry[2].action is not None]
        heapq.heapify(self._timers)
        self._tidy_at = max(1024, 2 * len(self._timers))


def _carefully(action: Callable[..., None], *arguments: Any) -> None:
    """One broken connection must not take the others with it."""
    try:
        action(*arguments)
    except Exception:
        log.exception("a connection's handler failed")


_loop: IoLoop | None = None
_making = threading.Lock()


def io_loop() -> IoLoop:
    """The loop of this process, begun at first use; a fork begins its own."""
    global _loop
    with _making:
        if _loop is None:
            _loop = IoLoop()
        return _loop


def _forked() -> None:
    global _loop, _making
    _loop, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)
