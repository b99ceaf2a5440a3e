"""A connection to whoever holds a channel, for threads that wait."""

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from folkmoot.host.clock import backoff
from folkmoot.unified.channel.errors import ChannelError, ChannelLost
from folkmoot.unified.channel.messages import Failed, Hello, Message, Welcome, dump, load
from folkmoot.unified.channel.spool import Buffer
from folkmoot.unified.rpc import address as addresses
from folkmoot.unified.rpc.errors import FrameError, WorkerDied
from folkmoot.unified.rpc.frames import FrameReader, Kind, encode
from folkmoot.unified.rpc.handshake import Seal, call_out

CONNECT_SECONDS = 10.0


class Received(NamedTuple):
    message: Message
    parts: list[memoryview]


class ChannelAddress(NamedTuple):
    """Where a channel is held, and what shows that we may use it."""

    channel: str
    address: str | Callable[[], str]  # or whoever knows it now
    secret: bytes
    patience: float = 60.0  # seconds that nobody may hold it


class ChannelLine:
    """Any thread may send; one at a time may receive. OSError when the connection is broken."""

    def __init__(self, stream: socket.socket, seals: tuple[Seal, Seal] | None) -> None:
        self.local = stream.family == socket.AF_UNIX
        self._stream = stream
        self._seal = seals[0] if seals else None
        self._reader = FrameReader(seals[1] if seals else None)
        self._frames: deque[Received] = deque()
        self._sending = threading.Lock()

    def send(self, message: Message, parts: Sequence[Buffer] = ()) -> None:
        pieces = encode(Kind.Call, 0, type(message).__name__, [dump(message), *parts])
        with self._sending:
            if self._seal is not None:
                pieces = [*pieces, self._seal.of(pieces)]
            if len(pieces) == 1:
                return self._stream.sendall(pieces[0])
            return self._send_pieces([memoryview(piece).cast("B") for piece in pieces])

    def receive(self, seconds: float | None = None) -> Received | None:
        """The next message; None when none has come after so many seconds."""
        if seconds == 0.0:
            return self._arrived()
        until = None if seconds is None else time.monotonic() + seconds
        while not self._frames:
            if until is not None and not self._readable(until - time.monotonic()):
                return None
            self._take(self._stream.recv_into(self._reader.space()))
        return self._frames.popleft()

    def _arrived(self) -> Received | None:
        """What has come already."""
        try:
            while not self._frames:
                self._take(self._stream.recv_into(self._reader.space(), 0, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return None
        return self._frames.popleft()

    def close(self) -> None:
        self._stream.close()

    def _readable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._stream, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    def _take(self, count: int) -> None:
        if not count:
            raise ConnectionResetError("whoever held the channel is gone")
        try:
            for frame in self._reader.received(count):
                message = load(frame.header.method, frame.parts[0])
                self._frames.append(Received(message, frame.parts[1:]))
        except FrameError as error:
            raise ConnectionResetError(str(error)) from None

    def _send_pieces(self, views: list[memoryview]) -> None:
        while views:
            sent = self._stream.sendmsg(views[:64])
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if sent:
                views[0] = views[0][sent:]


def open_line(place: ChannelAddress, hello: Hello) -> tuple[ChannelLine, Welcome]:
    """A connection to the channel; tries again while nobody holds it, as long as we are patient."""
    since = time.monotonic()
    for pause in backoff(first=0.01, most=0.5):
        try:
            return _try(place, hello)
        except (OSError, WorkerDied) as error:
            if time.monotonic() + pause - since > place.patience:
                raise ChannelLost(
                    f"nobody has held the channel {place.channel} for"
                    f" {time.monotonic() - since:.0f} seconds: {error}"
                ) from None
        time.sleep(pause)
    raise AssertionError("a backoff never ends")


def _try(place: ChannelAddress, hello: Hello) -> tuple[ChannelLine, Welcome]:
    address = place.address if isinstance(place.address, str) else place.address()
    stream = addresses.connect(address, CONNECT_SECONDS)
    try:
        keys = call_out(stream, place.secret)
        stream.settimeout(None)
        sealed = stream.family != socket.AF_UNIX
        line = ChannelLine(stream, (Seal(keys.caller), Seal(keys.listener)) if sealed else None)
        line.send(hello)
        received = line.receive(CONNECT_SECONDS)
        if received is None:
            raise TimeoutError(f"whoever listens there did not answer in {CONNECT_SECONDS:.0f} s")
        if isinstance(received.message, Failed):
            raise ChannelError(received.message.reason)
        assert isinstance(received.message, Welcome)
        return line, received.message
    except BaseException:
        stream.close()
        raise
