"""`DataChannel`: records from many producers to many consumers, each at least once.

    channel = DataChannel("tokens", address, secret)
    channel.put(record)                     # waits while the channel is full
    channel.flush()                         # all that was put is in, whoever dies then
    channel.finish()                        # this producer has put its last

    with channel.get(16) as batch:          # waits for 1 to 16 records; acks them at the end
        for record in batch: ...
    for batch in channel.batches(16): ...   # until the channel is closed and drained

What is promised: a record that was flushed is delivered until a consumer acks it, although
producers, consumers and the broker are killed at any moment, all at once too; only the machine that
holds the channel must go on. It may be delivered twice, with the same id, and is put once.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Self

from folkmoot.unified.channel.batch import Batch
from folkmoot.unified.channel.errors import ChannelError, Drained, Left
from folkmoot.unified.channel.intervals import spans_of
from folkmoot.unified.channel.line import ChannelAddress, open_line
from folkmoot.unified.channel.messages import Hello, Look, Stats
from folkmoot.unified.channel.reader import Reader
from folkmoot.unified.channel.writer import Writer

# A consumer that is done with a batch so soon (seconds) has the next one sent before it asks, if
# there is one; what a slower one would keep waiting, another may take.
AHEAD_WITHIN = 0.02


class DataChannel:
    """One process's end, for both directions. Connections are made at first use."""

    def __init__(
        self,
        name: str,
        address: str | Callable[[], str],
        secret: bytes,
        *,
        producer: str | None = None,
        patience: float = 60.0,
    ) -> None:
        """`address` is `unix:/path` or `tcp:host:port`, or a function that knows where the channel
        is now. `producer` names whoever puts: with a name that stays the same when a process is
        started again, `next_number` says where to go on, and finishing twice counts once.
        `patience` is how many seconds nobody may hold the channel before this is an error.
        """
        self.name = name
        self.producer = producer or f"{os.getpid()}-{secrets.token_hex(6)}"
        self._place = ChannelAddress(name, address, secret, patience)
        self._making = threading.Lock()
        self._a_writer: Writer | None = None
        self._a_reader: Reader | None = None

    # Putting.

    def put(self, record: object, timeout: float | None = None) -> None:
        """Hand a record over; waits while the channel is full, or raises TimeoutError."""
        (self._a_writer or self._writer()).put(record, timeout)

    def put_many(self, records: Iterable[object], timeout: float | None = None) -> None:
        self._writer().put_many(records, timeout)

    def put_from(self, records: Iterable[object], source: str, ids: Iterable[int]) -> None:
        """Put what was made from records of another channel, once for each of those.

        All of it is in when this returns. If some of the ids were used in this channel before,
        nothing is put and `AlreadyUsed` says which: leave them out, and make it again.
        """
        spans = [(first, end) for first, end in spans_of(ids)]
        self._writer().put_from(records, {source: spans})

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was put is in the channel, and stays there whoever dies."""
        self._writer().flush(timeout)

    @property
    def next_number(self) -> int:
        """The number of the record that this producer puts next; 1 for its first ever."""
        return self._writer().next_number

    def finish(self) -> None:
        """This producer is done. The channel closes when all declared producers are."""
        self._writer().finish(everyone=False)

    def close(self) -> None:
        """Nobody puts any more, whoever was still to."""
        self._writer().finish(everyone=True)

    # Getting.

    def get(self, limit: int = 64, timeout: float | None = None) -> Batch:
        """1 to `limit` records: waits for the first one, not for more.

        `Drained` when none will come; TimeoutError after so many seconds without one.
        """
        return self._reader().get(limit, timeout)

    def batches(self, limit: int = 64) -> Iterator[Batch]:
        """Batches until the channel is drained or this end is interrupted.

        Each is acked when the next one is asked for.
        """
        reader, batch, took = self._reader(), None, AHEAD_WITHIN
        try:
            while True:
                last, batch = batch, None
                batch = reader.get(limit, None, last, ahead=took < AHEAD_WITHIN)
                began = time.monotonic()
                yield batch
                took = time.monotonic() - began
        except (Drained, Left):
            return
        finally:
            if batch is not None:
                batch.give_back()
            reader.stop_ahead()

    def interrupt(self) -> None:
        """From another thread: who waits in `get`, now or later, hears `Left`."""
        self._reader().interrupt()

    # Both.

    def stats(self) -> Stats:
        """Depth, rates and waits, as they are now."""
        line, _ = open_line(self._place, Hello(self.name))
        try:
            line.send(Look())
            received = line.receive()
        finally:
            line.close()
        assert received is not None
        assert isinstance(received.message, Stats)
        return received.message

    def leave(self) -> None:
        """This process uses the channel no more; the channel goes on."""
        reader, self._a_reader = self._a_reader, None
        writer, self._a_writer = self._a_writer, None
        if reader is not None:
            reader.leave()
        if writer is not None:
            try:
                writer.flush()
            finally:
                writer.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        try:
            self.leave()
        except ChannelError:
            if kind is None:
                raise

    def _writer(self) -> Writer:
        if self._a_writer is not None:
            return self._a_writer
        with self._making:
            if self._a_writer is None:
                self._a_writer = Writer(self._place, self.producer)
            return self._a_writer

    def _reader(self) -> Reader:
        if self._a_reader is not None:
            return self._a_reader
        with self._making:
            if self._a_reader is None:
                self._a_reader = Reader(self._place)
            return self._a_reader
