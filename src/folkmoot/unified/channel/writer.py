"""A producer's end: gathers records into batches.

A record that comes after a quiet time is sent at once; in a stream they wait for their batch to be
full, or for a moment (`LINGER`). Large records are written into a heap file one by one, if the
channel is held on this machine. The `Outbox` sees to it that batches arrive.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

from folkmoot.unified.channel import records
from folkmoot.unified.channel.errors import AlreadyUsed, ChannelError
from folkmoot.unified.channel.intervals import IdRange
from folkmoot.unified.channel.line import ChannelAddress
from folkmoot.unified.channel.messages import Ids, WereUsed
from folkmoot.unified.channel.outbox import BATCH_SIZE, LARGE, Outbox
from folkmoot.unified.channel.spool import Buffer

LINGER = 0.005


class Writer:
    """Any thread may use it; one at a time does."""

    def __init__(self, place: ChannelAddress, producer: str) -> None:
        self.place, self.producer = place, producer
        self._lock = threading.RLock()
        self._out = Outbox(place, producer)
        self._begun = self._sent = -LINGER  # when the last batch was
        self._linger = _Linger(self._send_lingering)

    @property
    def next_number(self) -> int:
        """The number that the next record of this producer gets; the first ever is 1."""
        with self._lock:
            return self._out.number + len(self._out.next.body)

    def put(self, record: object, timeout: float | None = None) -> None:
        pieces = records.encode(record)
        if timeout is not None:
            return self._put_in_time([pieces], timeout)
        with self._lock:
            if len(pieces) == 1 and self._out.next.add_between(pieces[0]):
                return None
            self._add(pieces, None)
            batch = self._out.next
            if batch.full or (len(batch.body) == 1 and self._begin()):
                self._send()
        return None

    def put_many(self, some: Iterable[object], timeout: float | None = None) -> None:
        encoded = map(records.encode, some)
        if timeout is not None:
            return self._put_in_time(encoded, timeout)
        with self._lock:
            while chunk := list(islice(encoded, self._out.next.most)):
                if self._fits_as_one(chunk):
                    self._add_all(chunk)
                    continue
                for pieces in chunk:
                    self._add(pieces, None)
                    if self._out.next.full:
                        self._out.send_batch()
            self._out.send_batch()
        return None

    def put_from(self, some: Iterable[object], sources: dict[str, Ids]) -> None:
        """All at once or, if one of the sources was used before, nothing: `AlreadyUsed`."""
        encoded = [records.encode(record) for record in some]
        self._expect_room(sum(len(piece) for pieces in encoded for piece in pieces), len(encoded))
        with self._lock:
            self._out.flush(None)
            for pieces in encoded:
                self._add(pieces, None, split=False)
            self._out.answer = None
            self._out.send_batch(sources)
            self._out.wait(lambda: not self._out.pending, None)
            if isinstance(self._out.answer, WereUsed):
                spans = {
                    name: [IdRange(*s) for s in ids] for name, ids in self._out.answer.spans.items()
                }
                raise AlreadyUsed(self.place.channel, spans)

    def flush(self, timeout: float | None = None) -> None:
        """Until all that was put is in the channel, whoever dies then."""
        with self._locked(timeout) as until:
            self._out.flush(until)

    def finish(self, everyone: bool) -> None:
        with self._lock:
            self._out.finish(everyone)

    def leave(self) -> None:
        self._linger.stop()
        with self._lock:
            self._out.close()

    # With the lock held.

    @contextmanager
    def _locked(self, timeout: float | None) -> Iterator[float | None]:
        until = None if timeout is None else time.monotonic() + timeout
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise TimeoutError(f"{self.place.channel} has had no room for {timeout} seconds")
        try:
            yield until
        finally:
            self._lock.release()

    def _put_in_time(self, encoded: Iterable[list[Buffer]], timeout: float) -> None:
        with self._locked(timeout) as until:
            for pieces in encoded:
                self._add(pieces, until)
                self._out.send_batch()

    def _begin(self) -> bool:
        """A batch begins; whether it was quiet before, so that nothing is waited for."""
        self._begun = time.monotonic()
        if self._begun - self._sent > LINGER:
            return True
        self._linger.wake()
        return False

    def _send(self) -> None:
        self._out.send_batch()
        self._sent = time.monotonic()

    def _add(self, pieces: list[Buffer], until: float | None, split: bool = True) -> None:
        """Take a record over, when there is room for it."""
        if self._out.failure is not None:
            raise self._out.failure
        record = pieces[0] if len(pieces) == 1 else None
        size = sum(map(len, pieces)) if record is None else len(record)
        batch = self._out.next
        if not batch.body and self._out.enough:
            self._out.wait(lambda: not self._out.enough, until)
        if split and batch.size + batch.large + size > self._out.rules.size:
            self._expect_room(size)
            self._out.send_batch()
            batch = self._out.next
        if size >= LARGE and self._out.heap is not None:
            return self._add_large(pieces, size, until, split)
        return batch.add(b"".join(pieces) if record is None else record)

    def _fits_as_one(self, chunk: list[list[Buffer]]) -> bool:
        """Whether these are small enough for one batch of their own."""
        size = sum(len(piece) for pieces in chunk for piece in pieces)
        return size <= min(2 * BATCH_SIZE, self._out.rules.size)

    def _add_all(self, chunk: list[list[Buffer]]) -> None:
        """The same as `_add` for each, but quicker."""
        self._out.send_batch()
        if self._out.enough:
            self._out.wait(lambda: not self._out.enough, None)
        batch = self._out.next
        batch.body = [p[0] if len(p) == 1 else b"".join(p) for p in chunk]
        batch.size = sum(map(len, batch.body))
        if len(chunk) == batch.most:
            self._out.send_batch()

    def _add_large(self, pieces: list[Buffer], size: int, until: float | None, split: bool) -> None:
        assert self._out.heap is not None
        while (offset := self._out.heap.regions.take(size)) is None:
            if split and self._out.next.body:
                # So that it can be used, and freed. What comes meanwhile is read on the way: it
                # may be all that will ever come, so look before waiting for more.
                self._out.send_batch()
            else:
                self._out.receive(until)
        try:
            self._out.heap.write(offset, pieces)
        except OSError:  # the disk is full
            self._out.heap.regions.free(offset)
            raise
        self._out.next.add_region(offset, size)

    def _expect_room(self, size: int, count: int = 1) -> None:
        rules = self._out.rules
        if size > rules.size or count > rules.records:
            raise ChannelError(
                f"{count} records of {size} bytes at once; the channel {self.place.channel} holds"
                f" {rules.records} of {rules.size}: declare it larger"
            )

    def _send_lingering(self) -> float:
        """Send a batch that has waited for long; how much longer the one that is there may."""
        with self._lock:
            if not self._out.next.body or self._out.failure is not None:
                return 0.0
            left = self._begun + LINGER - time.monotonic()
            if left > 0:
                return left
            self._send()
        return 0.0


class _Linger:
    """A thread that sends what waits for more to come, a moment after it was woken.

    `send` says how many seconds later to try again, 0 if nothing is left.
    """

    def __init__(self, send: Callable[[], float]) -> None:
        self._send = send
        self._woken, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="channel", daemon=True)
            self._thread.start()
        if not self._woken.is_set():
            self._woken.set()

    def stop(self) -> None:
        self._stopped.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._woken.wait():
            self._woken.clear()  # before the look at `stopped`: who stops sets that first
            if self._stopped.wait(LINGER):
                return
            try:
                while (left := self._send()) and not self._stopped.wait(left):
                    pass
            except ChannelError:
                return  # the next who puts hears of it
