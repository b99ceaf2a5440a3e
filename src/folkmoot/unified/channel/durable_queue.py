"""What a channel holds: the rules' state, the records' bytes, and the spool below them.

Changes are added to the spool and count when `commit` has returned. Whoever takes the folder up
reads them and has the same records under the same ids; who had leased them is not among it.
"""

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from folkmoot.unified.channel import stored
from folkmoot.unified.channel.heap import read_region
from folkmoot.unified.channel.heaps import Heaps
from folkmoot.unified.channel.messages import Ids, Put
from folkmoot.unified.channel.queue import Accepted, Answer, ChannelRules, Piece, Queue
from folkmoot.unified.channel.spool import Buffer, Spool
from folkmoot.unified.channel.stored import Cut, Stored


class DurableQueue:
    def __init__(self, rules: ChannelRules, folder: Path) -> None:
        self.uid = secrets.token_hex(8)
        self.queue = Queue(rules)
        self.heaps = Heaps(folder)
        self._stored: dict[int, Stored] = {}
        self._spool = Spool(folder)
        for entry in self._spool.entries:
            self._replay(stored.read(entry), entry.body)
        self._spool.entries = []
        self.heaps.sweep()
        self._spool.begin(self._snapshot())

    def offer(self, producer: str, heap: str, put: Put, body: memoryview) -> Answer:
        """Put a batch, if the rules let it in."""
        count = len(put.sizes)
        size = len(body) + put.body[1] + sum(length for _, length in put.regions)
        answer = self.queue.offer(producer, put.number, count, size, put.sources, now_ms())
        if not isinstance(answer, Accepted):
            return answer
        last = put.number + count - 1
        entry = stored.StoredBatch(
            answer.first, put.sizes, put.regions, heap, producer, last, put.sources, put.body
        )
        self._spool.add(stored.write(entry), [body])
        self._store(answer.first, Stored(put.sizes, put.regions, heap, body, put.body))
        return answer

    def ack(self, ids: Ids) -> int:
        """How many records are over only now."""
        counted, over = self.queue.ack(ids)
        if counted:
            self._spool.add(stored.write(stored.Acked(ids)))
        for batch in over:
            gone = self._stored.pop(batch)
            for offset in gone.offsets:
                self.heaps.over(gone.heap, offset)
        return counted

    def finish(self, producer: str) -> None:
        """By this producer, or by all when it is empty."""
        self._finished(producer)
        self._spool.add(stored.write(stored.ProducerFinished(producer)))

    def commit(self) -> None:
        """What was changed outlives this process from now on."""
        self._spool.commit()

    def tidy(self) -> None:
        """Begin the spool anew if it has grown."""
        if self._spool.grown:
            self._spool.begin(self._snapshot())

    def close(self) -> None:
        self._spool.close()

    def cut(self, piece: Piece) -> tuple[Cut, Stored]:
        """The records of a piece, and the batch that they are of."""
        batch, held = self.queue.batches[piece.batch], self._stored[piece.batch]
        return held.cut(piece.first - batch.first, piece.end - batch.first), held

    def inline(self, cut: Cut, batch: Stored) -> Cut:
        """The same records with those that lie in a heap among the others."""
        heap = self.heaps.path(batch.heap)
        small = cut.body
        if cut.length:
            small = memoryview(read_region(heap, batch.lies[0] + cut.begin, cut.length))
        body, sizes, regions, at = bytearray(), list[int](), iter(cut.regions), 0
        for size in cut.sizes:
            if not size:
                large = read_region(heap, *next(regions))
                body += large
                sizes.append(len(large))
                continue
            body += small[at : at + size]
            sizes.append(size)
            at += size
        return Cut(sizes, [], memoryview(body))

    def _store(self, first: int, batch: Stored) -> None:
        if batch.sizes:
            self._stored[first] = batch
            self.heaps.used(batch.heap, len(batch.offsets))

    def _snapshot(self) -> Iterable[tuple[bytes, Sequence[Buffer]]]:
        queue = self.queue
        used = {name: [(*span,) for span in spans] for name, spans in queue.used.items()}
        held = stored.ChannelState(
            *(self.uid, queue.next_id, queue.last, used, sorted(queue.finished), queue.closed)
        )
        yield stored.write(held), ()
        for first, batch in self._stored.items():
            entry = stored.StoredBatch(
                first, batch.sizes, batch.regions, batch.heap, lies=batch.lies
            )
            yield stored.write(entry), [batch.body]
            if acked := list(_gaps(queue.not_acked(first), first, first + len(batch.sizes))):
                yield stored.write(stored.Acked(acked)), ()

    def _replay(self, entry: stored.SpoolRecord, body: bytes) -> None:
        queue = self.queue
        if isinstance(entry, stored.ChannelState):
            self.uid, queue.next_id, queue.closed = entry.uid, entry.next_id, entry.closed
            queue.last.update(entry.last)
            queue.finished.update(entry.finished)
            queue.account("", 0, entry.used)
        elif isinstance(entry, stored.StoredBatch):
            self._replay_batch(entry, body)
        elif isinstance(entry, stored.Acked):
            for batch in queue.ack(entry.ids)[1]:
                gone = self._stored.pop(batch)
                self.heaps.used(gone.heap, -len(gone.offsets))
        elif isinstance(entry, stored.ProducerFinished):
            self._finished(entry.producer)

    def _replay_batch(self, entry: stored.StoredBatch, body: bytes) -> None:
        size = sum(entry.sizes) + sum(length for _, length in entry.regions)
        self.queue.enter(entry.first, len(entry.sizes), size, now_ms())
        if entry.producer:
            self.queue.account(entry.producer, entry.last, entry.sources)
        batch = Stored(
            list(entry.sizes), list(entry.regions), entry.heap, memoryview(body), entry.lies
        )
        self._store(entry.first, batch)

    def _finished(self, producer: str) -> None:
        if producer:
            self.queue.finish(producer)
        else:
            self.queue.close()


def _gaps(spans: Sequence[tuple[int, int]], first: int, end: int) -> Iterator[tuple[int, int]]:
    """What lies between spans."""
    for begin, over in spans:
        if first < begin:
            yield first, begin
        first = over
    if first < end:
        yield first, end


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
