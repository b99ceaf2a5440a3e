"""A consumer's end: waits for records, holds them on a lease, and says when they are done.

Acks go out at once and are kept until it is known that they arrived: whatever is answered to a
later question came after them. Over a new connection they are sent again, which does no harm.

Large records are looked at where their producer wrote them, and nobody writes there while something
in this process uses them (`views`). Small ones are read there and get memory of their own.
"""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from folkmoot.unified.channel import records
from folkmoot.unified.channel.batch import Batch
from folkmoot.unified.channel.errors import Drained, Left, TimeOver
from folkmoot.unified.channel.heap import Maps
from folkmoot.unified.channel.line import ChannelAddress, ChannelLine, Received, open_line
from folkmoot.unified.channel.messages import (
    IN_FRAME,
    Ack,
    Cancel,
    Delivery,
    Extend,
    Get,
    GiveBack,
    HeapRegion,
    Hello,
    Ids,
    Leave,
    Look,
    Message,
    Released,
)
from folkmoot.unified.channel.views import Key, Views

# Whoever holds the channel keeps the time of a get; if it says nothing this much later, it hangs.
GRACE = 10.0
# What is asked for ahead was there, so it comes within this time, if nobody else was quicker.
PROMPT = 0.001


class Reader:
    """Any thread may use it; one at a time waits for records."""

    def __init__(self, place: ChannelAddress) -> None:
        self.place = place
        self._waiting = threading.Lock()  # of the one who gets
        self._lock = threading.Lock()  # of what follows
        self._acks: Ids = []  # that may not have arrived
        self._asked: int | None = None  # acks that went with a `Get` that is not answered
        self._uid = ""
        self._line: ChannelLine | None = None
        self._left = False
        self._views: Views | None = None
        self._maps = Maps("")
        self._copied: list[Key] = []  # bodies that we have done with, and not said so

    def get(
        self, limit: int, timeout: float | None, done: Batch | None = None, ahead: bool = False
    ) -> Batch:
        """Up to `limit` records, at least one; `done` is acked on the way.

        With `ahead` the next ones are asked for as well if some are waiting, before they are
        needed: they come while these are in work. `stop_ahead` when they are not.
        """
        if done is not None:
            with self._lock:
                self._acks += done.spans
        if not self._waiting.acquire(blocking=False):
            self._say(Ack(done.spans if done else []))  # another thread may wait for just that
            self._waiting.acquire()
        try:
            received = self._ask(limit, timeout, ahead)
            delivery = received.message
            assert isinstance(delivery, Delivery)
            if delivery.ids:
                return Batch(self, delivery.ids, self._records(delivery, received.parts))
        finally:
            self._waiting.release()
        if self._left:
            raise Left(f"this process has left {self.place.channel}")
        if delivery.drained:
            raise Drained(f"{self.place.channel} is closed and drained")
        raise TimeoutError(f"{self.place.channel} had no record for {timeout} seconds")

    def ack(self, spans: Ids) -> None:
        with self._lock:
            self._acks += spans
            copied, self._copied = self._copied, []
        self._say(Ack(spans, copied))

    def give_back(self, spans: Ids) -> None:
        with self._lock:
            copied, self._copied = self._copied, []
        if copied:
            self._say(Released(copied))
        self._say(GiveBack(spans))

    def extend(self, spans: Ids) -> None:
        self._say(Extend(spans))

    def interrupt(self) -> None:
        """Whoever waits for records, now or later, hears `Left`."""
        with self._lock:
            self._left = True
        if self._waiting.acquire(blocking=False):
            self._waiting.release()
        else:
            self._say(Cancel())  # the connection stays: arrays that came over it may be in use

    def leave(self) -> None:
        """Give back what is leased, once the acks have arrived."""
        self.interrupt()
        self.stop_ahead()
        with self._waiting:
            while self._acks and not self._acks_arrived(self._connected()):
                pass
            self._acks = []
            self._part()

    def _acks_arrived(self, line: ChannelLine) -> bool:
        return self._converse(line, None, Ack(self._acks), Look()) is not None

    def _part(self) -> None:
        with self._lock:
            line, self._line = self._line, None
        if line is None:
            return
        with contextlib.suppress(OSError):  # then it is over anyway
            line.send(Leave())
        self._close(line)

    def stop_ahead(self) -> None:
        """Give back what was asked for and not taken."""
        with self._waiting:
            line, asked, self._asked = self._line, self._asked, None
            if line is None or asked is None:
                return
            try:
                line.send(Cancel())
                received = line.receive(GRACE)
                if received is not None and isinstance(received.message, Delivery):
                    line.send(GiveBack(received.message.ids))
            except OSError:
                self._broken(line)

    def _ask(self, limit: int, timeout: float | None, ahead: bool) -> Received:
        """Ask until it is answered: whoever holds the channel may change meanwhile."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._left:
                raise Left(f"this process has left {self.place.channel}")
            line = self._connected()
            try:
                received = self._answer(line, limit, until)
                if ahead and received.message.more:  # type: ignore[attr-defined]
                    self._send_get(line, limit, -1)
                return received
            except TimeOver:
                raise
            except OSError:
                self._broken(line)

    def _answer(self, line: ChannelLine, limit: int, until: float | None) -> Received:
        wait = -1 if until is None else max(0, round((until - time.monotonic()) * 1000))
        if self._asked is None:
            self._send_get(line, limit, wait)
            received = line.receive(None if until is None else wait / 1000 + GRACE)
            if received is None:
                raise ConnectionResetError("whoever holds the channel does not answer")
        else:
            received = line.receive(PROMPT if until is None else min(PROMPT, wait / 1000))
            if received is None:
                line.send(Ack(list(self._acks)))  # what we wait for may wait for that
                received = line.receive(None if until is None else wait / 1000)
            if received is None:
                raise TimeOver(f"{self.place.channel} had no record in time")
        with self._lock:
            self._acks = self._acks[self._asked or 0 :]
            self._asked = None
        return received

    def _send_get(self, line: ChannelLine, limit: int, wait: int) -> None:
        with self._lock:
            acks, self._asked = list(self._acks), len(self._acks)
        line.send(Get(limit, wait, acks, self._released(line)))

    def _released(self, line: ChannelLine) -> list[Key]:
        with self._lock:
            copied, self._copied = self._copied, []
        return copied + self._views.take(line) if self._views is not None else copied

    def _converse(self, line: ChannelLine, wait: int | None, *messages: Message) -> Received | None:
        """Say this and wait for the answer to the last; None when the connection broke."""
        try:
            for message in messages:
                line.send(message)
            received = line.receive(None if wait is None else wait / 1000 + GRACE)
            if received is None:
                raise ConnectionResetError("whoever holds the channel does not answer")
            return received
        except OSError:
            self._broken(line)
            return None

    def _say(self, message: Message) -> None:
        with self._lock:
            line = self._line
        if line is not None:
            try:
                line.send(message)
            except OSError:
                self._broken(line)

    def _connected(self) -> ChannelLine:
        with self._lock:
            line = self._line
        if line is not None:
            return line
        line, welcome = open_line(self.place, Hello(self.place.channel, uid=self._uid))
        with self._lock:
            self._line, self._uid, self._asked = line, welcome.uid, None
            self._copied = []
            self._maps.close()
            self._maps = Maps(welcome.folder)
        return line

    def _broken(self, line: ChannelLine) -> None:
        with self._lock:
            if self._line is line:
                self._line = None
        self._close(line)

    def _close(self, line: ChannelLine) -> None:
        """Not while something looks at what came over it: that would be written over."""
        if self._views is not None:
            self._views.close_after(line)
        else:
            line.close()

    def _records(self, delivery: Delivery, parts: list[memoryview]) -> list[Any]:
        found: list[Any] = []
        sizes, regions = iter(delivery.sizes), iter(delivery.regions)
        bodies = delivery.bodies or [IN_FRAME] * len(parts)
        for (first, end), part, body in zip(delivery.ids, parts, bodies, strict=True):
            some = islice(sizes, end - first)
            if not body.length:
                found += self._decode(part, some, regions, copy=False)
                continue
            part = self._maps.look(body.heap, body.offset + body.begin, body.length)
            try:
                found += self._decode(part, some, regions, copy=True)
            finally:
                with self._lock:
                    self._copied.append((body.heap, body.offset))
        return found

    def _decode(
        self, part: memoryview, sizes: Iterable[int], regions: Iterator[HeapRegion], copy: bool
    ) -> list[Any]:
        found, at = [], 0
        for size in sizes:
            if size:
                found.append(records.decode(part, at, at + size, copy))
                at += size
            else:
                found.append(self._map(next(regions)))
        return found

    def _map(self, region: HeapRegion) -> Any:
        heap, offset, length = region.heap, region.offset, region.length
        seen, mapped = self._maps.map(heap, offset, length)
        if self._views is None:
            self._views = Views()
        assert self._line is not None
        self._views.follow(seen, self._line, (heap, offset), length, mapped)
        return records.decode(memoryview(seen), 0, length)
