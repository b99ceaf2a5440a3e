"""One connection of a producer or a consumer, at the broker; in the thread of its I/O loop."""

import itertools
import logging
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from folkmoot.unified.channel.heaps import PREFIX
from folkmoot.unified.channel.held_channel import HeldChannel
from folkmoot.unified.channel.messages import (
    Ack,
    Cancel,
    Extend,
    Failed,
    Finish,
    Get,
    GiveBack,
    Hello,
    Leave,
    Look,
    Message,
    Put,
    Released,
    Welcome,
    dump,
    expect_sane,
    load,
)
from folkmoot.unified.channel.spool import Buffer
from folkmoot.unified.rpc.entrance import Seals
from folkmoot.unified.rpc.errors import FrameError
from folkmoot.unified.rpc.frames import FrameReader, Kind, RpcFrame, encode
from folkmoot.unified.rpc.io_loop import READ, WRITE, IoLoop

log = logging.getLogger(__name__)
_numbers = itertools.count(1)


class ChannelEnd:
    """Hands what comes to its channel, and sends what the channel says."""

    def __init__(
        self,
        loop: IoLoop,
        stream: socket.socket,
        seals: Seals,
        channels: Mapping[str, HeldChannel],
        happened: Callable[[HeldChannel], None],
        ends: "set[ChannelEnd]",
    ) -> None:
        self.id = f"end {next(_numbers)}"
        self.producer = self.heap = ""
        self.local = stream.family == socket.AF_UNIX
        self.channel: HeldChannel | None = None
        self._loop, self._stream = loop, stream
        self._channels, self._happened, self._ends = channels, happened, ends
        self._seal = seals[0] if seals else None
        self._reader = FrameReader(seals[1] if seals else None)
        self._unsent: deque[memoryview] = deque()
        self._paused = self._lost = False
        self._events = 0

    def begin(self) -> None:
        self._ends.add(self)
        self._watch()

    def send(self, message: Message, parts: Sequence[Buffer] = ()) -> None:
        if self._lost:
            return
        name = type(message).__name__
        pieces = encode(Kind.Result, 0, name, [dump(message), *parts])
        if self._seal is not None:
            pieces = [*pieces, self._seal.of(pieces)]
        self._unsent += [memoryview(piece).cast("B") for piece in pieces]
        self._flush()

    def pause(self) -> None:
        """Read no more, until there is room for what was read."""
        self._paused = True
        self._watch()

    def resume(self) -> None:
        self._paused = False
        self._watch()

    def lose(self, why: str) -> None:
        """The connection is over, for whatever reason."""
        if self._lost:
            return
        log.debug("%s of %s: %s", self.id, self.channel and self.channel.name, why)
        self._lost = True
        self._watch()
        self._stream.close()
        self._ends.discard(self)
        if (channel := self.channel) is not None:
            channel.leave(self, gone=True)
            self._happened(channel)  # others get what it held

    def _watch(self) -> None:
        """Wait for what matters now. Who is neither read nor written to need not be waited for."""
        reading = 0 if self._paused else READ
        events = 0 if self._lost else reading | (WRITE if self._unsent else 0)
        if events == self._events:
            return
        if not events:
            self._loop.unregister(self._stream)
        elif self._events:
            self._loop.modify(self._stream, events, self._ready)
        else:
            self._loop.register(self._stream, events, self._ready)
        self._events = events

    def _ready(self, events: int) -> None:
        try:
            if events & WRITE:
                self._flush()
            if events & READ and not self._lost:
                self._receive()
        except FrameError as error:
            log.warning("an end of a channel was cut off: %s", error)
            self.lose(str(error))
        if self.channel is not None:
            self._happened(self.channel)

    def _receive(self) -> None:
        try:
            count = self._stream.recv_into(self._reader.space())
        except BlockingIOError:
            return None
        except OSError as error:
            return self.lose(str(error))
        if not count:
            return self.lose("closed its connection")
        for frame in self._reader.received(count):
            self._handle(frame)
        return None

    def _flush(self) -> None:
        try:
            while self._unsent:
                some = [self._unsent[at] for at in range(min(len(self._unsent), 64))]
                self._sent(self._stream.sendmsg(some))
        except BlockingIOError:
            pass
        except OSError as error:
            return self.lose(str(error))
        self._watch()
        return None

    def _sent(self, count: int) -> None:
        while count and count >= len(self._unsent[0]):
            count -= len(self._unsent.popleft())
        if count:
            self._unsent[0] = self._unsent[0][count:]

    def _handle(self, frame: RpcFrame) -> None:
        if self._lost:
            return
        if not 1 <= len(frame.parts) <= 2:
            raise FrameError("a message has one part, or two with its records")
        message = load(frame.header.method, frame.parts[0])
        if isinstance(message, Hello):
            self._hello(message)
        elif self.channel is None:
            raise FrameError("a connection begins with a hello")
        elif isinstance(message, Put):
            body = frame.parts[1] if len(frame.parts) > 1 else memoryview(b"")
            self._put(self.channel, message, body)
        else:
            self._ask(self.channel, message)

    def _hello(self, hello: Hello) -> None:
        channel = self._channels.get(hello.channel)
        if channel is None:
            known = ", ".join(sorted(self._channels)) or "none"
            return self.send(Failed(f"there is no channel {hello.channel!r} here; known: {known}"))
        if hello.uid and hello.uid != channel.durable.uid:
            reason = f"{hello.channel} was begun anew: what it held before is lost"
            return self.send(Failed(reason))
        if hello.heap and (not hello.heap.startswith(PREFIX) or "/" in hello.heap):
            raise FrameError("a heap's name is no name of a file of the channel")
        self.producer, self.heap = hello.producer, hello.heap if self.local else ""
        if self.producer and (rival := channel.rival(self)) is not None:
            assert isinstance(rival, ChannelEnd)
            rival.lose("a newer connection of the same producer came")
        self.channel = channel
        channel.join(self)
        last = channel.queue.last.get(self.producer, 0)
        return self.send(
            Welcome(channel.durable.uid, channel.rules, str(channel.folder.resolve()), last)
        )

    def _put(self, channel: HeldChannel, put: Put, body: memoryview) -> None:
        expect_sane(put, len(body))
        if not self.producer or (put.offsets and not self.heap):
            raise FrameError("records come from a producer, and regions from its heap")
        channel.put(self, put, body)

    def _ask(self, channel: HeldChannel, message: Message) -> None:
        if isinstance(message, Get):
            channel.get(self, message)
        elif isinstance(message, Cancel):
            channel.cancel(self)
        elif isinstance(message, Ack):
            channel.ack(message.ids)
            channel.released(self, message.released)
        elif isinstance(message, GiveBack):
            channel.give_back(self, message.ids)
        elif isinstance(message, Extend):
            channel.extend(self, message.ids)
        elif isinstance(message, Released):
            channel.released(self, message.regions)
        elif isinstance(message, Leave):
            channel.leave(self, gone=False)
        elif isinstance(message, Finish):
            channel.finish(self, message.everyone)
        elif isinstance(message, Look):
            self.send(channel.stats())
        else:
            raise FrameError(f"{type(message).__name__} is nothing that an end says")
