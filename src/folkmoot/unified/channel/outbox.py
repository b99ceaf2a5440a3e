"""Batches on their way: sent, kept until they are in, and sent again over the next connection.

The bytes of a batch are written into the heap of its connection, if the channel is held on this
machine, and only told over the socket. What is not confirmed when a connection breaks is sent over
the next one under the same numbers, so nothing is put twice. Every connection has a heap file of
its own, and what lies in the old one is copied to the new: so a new holder of the channel never
needs to know which regions its predecessor had given out.
"""

import secrets
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from folkmoot.unified.channel.errors import ChannelError, Closed, TimeOver
from folkmoot.unified.channel.heap import Heap
from folkmoot.unified.channel.heaps import PREFIX
from folkmoot.unified.channel.line import ChannelAddress, ChannelLine, open_line
from folkmoot.unified.channel.messages import (
    Confirmed,
    Done,
    Failed,
    Finish,
    Hello,
    Ids,
    Put,
    WereUsed,
)
from folkmoot.unified.channel.queue import ChannelRules
from folkmoot.unified.channel.regions import PAGE
from folkmoot.unified.channel.spool import Buffer

MOST_BATCHES, MOST_LARGE = 8, 16 * 1024 * 1024  # that are not confirmed
BATCH, BATCH_SIZE = 512, 512 * 1024
LARGE = 64 * 1024  # from this size on a record goes through the heap by itself
BATCH_LARGE = 8 * 1024 * 1024  # bytes in the heap
SMALLEST_BODY = 16 * 1024  # less goes over the socket


class SentBatch(NamedTuple):
    put: Put
    body: bytes  # empty when it lies in the heap

    @property
    def last(self) -> int:
        return self.put.number + len(self.put.sizes) - 1


class Gathered:
    """The records of the next batch."""

    __slots__ = ("_room", "body", "large", "most", "regions", "size")

    def __init__(self, rules: ChannelRules) -> None:
        self.most = min(BATCH, rules.records)
        self._room = min(BATCH_SIZE, rules.size)
        self.body: list[Buffer] = []  # the small ones; nothing for each of the regions
        self.regions: list[tuple[int, int]] = []
        self.size = self.large = 0  # bytes in the body, and in regions of their own

    @property
    def full(self) -> bool:
        some = len(self.body) >= self.most
        return some or self.size >= BATCH_SIZE or self.large >= BATCH_LARGE

    def add_between(self, record: Buffer) -> bool:
        """Add a small record if it neither begins nor fills a batch of such; whether it did."""
        length = len(record)
        size = self.size + length
        if not 0 < len(self.body) < self.most - 1 or size >= self._room:
            return False
        if self.large or length >= LARGE:
            return False
        self.body.append(record)
        self.size = size
        return True

    def add(self, record: Buffer) -> None:
        self.body.append(record)
        self.size += len(record)

    def add_region(self, offset: int, length: int) -> None:
        self.body.append(b"")
        self.regions.append((offset, length))
        self.large += length


class Outbox:
    """For one thread at a time."""

    def __init__(self, place: ChannelAddress, producer: str) -> None:
        self._place, self._producer = place, producer
        self.pending: deque[SentBatch] = deque()
        self.pending_large = 0  # bytes of theirs in the heap
        #: What was answered to the last question: a put with sources, or a finish.
        self.answer: WereUsed | Done | None = None
        self.failure: ChannelError | None = None
        self.heap: Heap | None = None
        self._finishing: Finish | None = None
        self._uid = ""
        self._line = self._open()
        self.next = Gathered(self.rules)

    @property
    def enough(self) -> bool:
        """Whether to wait before more is sent."""
        return len(self.pending) >= MOST_BATCHES or self.pending_large >= MOST_LARGE

    def send_batch(self, sources: dict[str, Ids] | None = None) -> None:
        batch = self.next
        if not batch.body and sources is None:
            return
        sizes = list(map(len, batch.body))
        body = b"".join(batch.body)
        lies = self._lay(body)
        put = Put(self.number, sizes, batch.regions, sources or {}, lies)
        pending = SentBatch(put, b"" if lies[1] else body)
        self.pending.append(pending)
        self.pending_large += batch.large
        self.number += len(sizes)
        self.next = Gathered(self.rules)
        self._attempt(lambda: self._send(pending))
        self._drain()

    def _lay(self, body: bytes) -> tuple[int, int]:
        """Write small records into the heap; without a length if it takes none now."""
        if self.heap is None or len(body) < SMALLEST_BODY:
            return 0, 0
        offset = self.heap.regions.take(len(body))
        if offset is None:
            return 0, 0
        try:
            self.heap.write(offset, [body])
        except OSError:  # the disk is full, as whoever holds the channel will say
            self.heap.regions.free(offset)
            return 0, 0
        return offset, len(body)

    def _send(self, pending: SentBatch) -> None:
        self._line.send(pending.put, [pending.body] if pending.body else ())

    def flush(self, until: float | None) -> None:
        self.send_batch()
        self.wait(lambda: not self.pending, until)

    def wait(self, done: Callable[[], bool], until: float | None) -> None:
        while not done():
            if self.failure is not None:
                raise self.failure
            self.receive(until)

    def _drain(self) -> None:
        """Take in what has come, without waiting."""

        def take() -> None:
            while (received := self._line.receive(0.0)) is not None:
                self._hear(received.message)

        self._attempt(take)

    def receive(self, until: float | None) -> None:
        def take() -> None:
            seconds = None if until is None else until - time.monotonic()
            received = self._line.receive(seconds)
            if received is None:
                raise TimeOver(f"{self._place.channel} had no room in time")
            self._hear(received.message)

        self._attempt(take)

    def _hear(self, message: msgspec.Struct) -> None:
        if isinstance(message, Confirmed):
            self._confirmed(message.last)
            for offset in message.freed:
                assert self.heap is not None
                self.heap.regions.free(offset)
        elif isinstance(message, WereUsed):
            self.number = message.number
            self.pending.clear()
            self.pending_large = 0
            self.answer = message
        elif isinstance(message, Done):
            self.answer = message
        elif isinstance(message, Failed):
            self.failure = (Closed if message.closed else ChannelError)(
                f"{self._place.channel}: {message.reason}"
            )
            self.next = Gathered(self.rules)  # so that the next who puts asks, and hears of it
            raise self.failure

    def _confirmed(self, last: int) -> None:
        while self.pending and self.pending[0].last <= last:
            over = self.pending.popleft()
            self.pending_large -= sum(length for _, length in over.put.regions)

    def finish(self, everyone: bool) -> None:
        self.flush(None)
        self.answer = None
        finish = self._finishing = Finish(everyone)
        self._attempt(lambda: self._line.send(finish))
        self.wait(lambda: isinstance(self.answer, Done), None)
        self._finishing = None

    def close(self) -> None:
        self._line.close()
        if self.heap is not None:
            self.heap.close()

    # When the connection breaks.

    def _attempt(self, action: Callable[[], None]) -> None:
        """Do it; if the connection is broken, make a new one, on which all is sent again."""
        try:
            action()
        except TimeOver:
            raise
        except OSError:
            self._reopen()

    def _open(self) -> ChannelLine:
        name = f"{PREFIX}{secrets.token_hex(8)}"
        hello = Hello(self._place.channel, self._producer, name, self._uid)
        line, welcome = open_line(self._place, hello)
        self._uid, self.rules = welcome.uid, welcome.rules
        self._confirmed(welcome.last)
        self.number = welcome.last + 1
        # Twice the size, since regions are whole pages and there are gaps between them.
        heap = Path(welcome.folder) / name
        self.heap = Heap(heap, 2 * self.rules.size + PAGE) if line.local else None
        return line

    def _reopen(self) -> None:
        while True:
            self._line.close()
            old = self.heap
            self._line = self._open()
            self._move_all(old)
            try:
                return self._send_all()
            except OSError:
                continue

    def _send_all(self) -> None:
        for pending in self.pending:
            self._send(pending)
        if self._finishing is not None:
            self._line.send(self._finishing)

    def _move_all(self, old: Heap | None) -> None:
        """What lies in the heap of a connection that is over goes to that of the new one."""
        for at, (put, body) in enumerate(self.pending):
            regions, laid = self._move(old, put.regions), put.body
            if laid[1]:
                [laid] = self._move(old, [laid])
            moved = msgspec.structs.replace(put, regions=regions, body=laid)
            self.pending[at] = SentBatch(moved, body)
            self.number += len(put.sizes)
        self.next.regions = self._move(old, self.next.regions)
        if old is not None:
            old.close()

    def _move(self, old: Heap | None, regions: list[tuple[int, int]]) -> list[tuple[int, int]]:
        moved = []
        for offset, length in regions:
            assert old is not None
            assert self.heap is not None
            place = self.heap.regions.take(length)
            assert place is not None, "what fitted before fits again"
            self.heap.write(place, [old.read(offset, length)])
            moved.append((place, length))
        return moved
