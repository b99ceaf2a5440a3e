"""One authenticated stream between two actors. Either end may call the other.

A caller's thread writes its frame itself if the socket takes it; what it does not take is copied
and written by the I/O thread, so the caller may change its arrays as soon as `call` has returned.
When the stream breaks, every call that is on its way fails at once and names the actor.
"""

import contextlib
import logging
import os
import platform
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec

from folkmoot.core.unreadable import UNREADABLE
from folkmoot.unified.rpc import values
from folkmoot.unified.rpc.call import Call
from folkmoot.unified.rpc.errors import FrameError, Overloaded, RpcError, WorkerDied
from folkmoot.unified.rpc.execution import Execution
from folkmoot.unified.rpc.frames import FrameReader, Kind, RpcFrame, encode
from folkmoot.unified.rpc.handshake import Buffer, Seal
from folkmoot.unified.rpc.io_loop import READ, WRITE, IoLoop

MOST_UNSENT = 8 * 1024**3
log = logging.getLogger(__name__)


class RpcPeer(msgspec.Struct, frozen=True, array_like=True):
    """Who is at an end of a connection, as it says itself."""

    name: str
    incarnation: int = 0
    pid: int = 0
    host: str = ""

    @classmethod
    def me(cls, name: str, incarnation: int = 0) -> "RpcPeer":
        return cls(name, incarnation, os.getpid(), platform.node())

    def __str__(self) -> str:
        return f"{self.name} (incarnation {self.incarnation}, process {self.pid} on {self.host})"


Hook = Callable[["RpcConnection"], None]


def no_hook(_: "RpcConnection") -> None: ...


class RpcConnection:
    """`call` may be used from any thread; hooks run in the I/O thread and must not wait."""

    def __init__(
        self,
        loop: IoLoop,
        stream: socket.socket,
        me: RpcPeer,
        seals: tuple[Seal, Seal] | None,
        execution: Execution,
        on_open: Hook = no_hook,
        on_closed: Hook = no_hook,
    ) -> None:
        self.peer: RpcPeer | None = None
        self.opened: Future[RpcPeer] = Future()
        self.why_closed: str | None = None
        self._loop, self._stream, self._me = loop, stream, me
        self._seal = seals[0] if seals else None
        self._reader = FrameReader(seals[1] if seals else None)
        self._execution = execution
        self._on_open, self._on_closed = on_open, on_closed
        self._lock = threading.Lock()
        self._pending: dict[int, Call[Any]] = {}
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._events = READ

    def begin(self) -> None:
        """For the I/O thread: say who we are, and listen."""
        self._stream.setblocking(False)
        self._loop.register(self._stream, READ, self._ready)
        self.send(Kind.Hello, 0, "", [msgspec.msgpack.encode(self._me)])

    @property
    def where(self) -> str:
        return str(self.peer) if self.peer is not None else "a peer that has not said its name"

    @property
    def closed(self) -> bool:
        return self.why_closed is not None

    def call(self, method: str, *arguments: Any, **keywords: Any) -> Call[Any]:
        """Call a method of the other end."""
        call: Call[Any] = Call(self.peer.name if self.peer else "the peer", method)
        self.submit(call, values.dump((arguments, keywords)))
        return call

    def submit(self, call: Call[Any], parts: list[Buffer]) -> None:
        """Send a call that exists already."""
        pieces = encode(Kind.Call, call.id, call.method, parts)
        call.line = self
        with self._lock:
            if self.why_closed is None:
                self._pending[call.id] = call
                return self._write(pieces)
        call.fail(self._died(call))
        return None

    def forget(self, call: int) -> None:
        """A call whose answer nobody waits for any more."""
        self._pending.pop(call, None)

    def send(self, kind: Kind, call: int, method: str, parts: list[Buffer]) -> None:
        pieces = encode(kind, call, method, parts)
        with self._lock:
            if self.why_closed is None:  # nobody is left to hear an answer
                self._write(pieces)

    def close(self, why: str = "was closed here") -> None:
        """End the stream, from any thread. Calls on their way fail."""
        self._loop.soon(lambda: self._lose(why))

    def _write(self, pieces: list[Buffer]) -> None:
        """With the lock held: frames go out whole and in the order of their seals."""
        if self._unsent_bytes > MOST_UNSENT:
            raise Overloaded(f"{self.where} does not read: {self._unsent_bytes} bytes wait for it")
        if self._seal is not None:
            pieces = [*pieces, self._seal.of(pieces)]
        views = [memoryview(piece).cast("B") for piece in pieces]
        if not self._unsent:
            try:
                views = _rest(views, self._stream.sendmsg(views))
            except BlockingIOError:
                pass
            except OSError as error:
                why = _reason(error)
                return self._loop.soon(lambda: self._lose(why))
        if views:
            self._keep(views)
        return None

    def _keep(self, views: list[memoryview]) -> None:
        idle = not self._unsent
        for view in views:
            self._unsent.append(memoryview(bytes(view)))
            self._unsent_bytes += len(view)
        if idle:
            self._loop.soon(lambda: self._want(READ | WRITE))

    def _want(self, events: int) -> None:
        if self.why_closed is None and events != self._events:
            self._events = events
            self._loop.modify(self._stream, events, self._ready)

    def _ready(self, events: int) -> None:
        try:
            if events & WRITE:
                self._flush()
            if events & READ and self.why_closed is None:
                self._receive()
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(_reason(error))
        except FrameError as error:
            log.warning("%s: %s", self.where, error)
            self._lose(f"was cut off: {error}")

    def _flush(self) -> None:
        with self._lock:
            while self._unsent:
                some = [self._unsent[k] for k in range(min(len(self._unsent), 64))]
                sent = self._stream.sendmsg(some)
                self._unsent_bytes -= sent
                while sent and sent >= len(self._unsent[0]):
                    sent -= len(self._unsent.popleft())
                if sent:
                    self._unsent[0] = self._unsent[0][sent:]
            self._want(READ)

    def _receive(self) -> None:
        count = self._stream.recv_into(self._reader.space())
        if not count:
            return self._lose("closed its connection")
        for frame in self._reader.received(count):
            self._handle(frame)
            if self.why_closed is not None:
                break
        return None

    def _handle(self, frame: RpcFrame) -> None:
        kind = frame.header.kind
        if self.peer is None or kind is Kind.Hello:
            self._hello(frame)
        elif kind is Kind.Call:
            self._execution.take(self, frame)
        elif (call := self._pending.pop(frame.header.call, None)) is not None:
            call.reply(frame)

    def _hello(self, frame: RpcFrame) -> None:
        if self.peer is not None or frame.header.kind is not Kind.Hello or len(frame.parts) != 1:
            raise FrameError("a connection begins with one hello")
        try:
            self.peer = msgspec.msgpack.decode(frame.parts[0], type=RpcPeer)
        except UNREADABLE as error:
            raise FrameError(f"a hello cannot be read: {error}") from None
        self.opened.set_result(self.peer)
        self._on_open(self)

    def _lose(self, why: str) -> None:
        with self._lock:
            if self.why_closed is not None:
                return
            self.why_closed = why
            self._unsent.clear()
        with contextlib.suppress(KeyError, ValueError):  # it had not begun
            self._loop.unregister(self._stream)
        self._stream.close()
        if self.peer is None:
            self.opened.set_exception(RpcError(f"the peer {why} before it said its name"))
        while self._pending:
            _, call = self._pending.popitem()
            call.fail(self._died(call))
        self._on_closed(self)

    def _died(self, call: Call[Any]) -> WorkerDied:
        who = str(self.peer).removeprefix(call.actor).strip() if self.peer else ""
        return WorkerDied(call.actor, f"{who} {self.why_closed} while {call.method} was called")


def _rest(views: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of some pieces after so many bytes."""
    for number, view in enumerate(views):
        if sent < len(view):
            return [view[sent:], *views[number + 1 :]]
        sent -= len(view)
    return []


def _reason(error: OSError) -> str:
    if isinstance(error, BrokenPipeError | ConnectionResetError):
        return "closed its connection"
    return f"cannot be reached any more ({error.strerror or error})"
