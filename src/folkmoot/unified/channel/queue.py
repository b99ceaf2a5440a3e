"""The rules of a channel, without its bytes: who may put, who holds what, what is over.

Records come in batches and get ids in a row, the first of a channel is 1. From then on a record is
*waiting* (anyone may take it), *leased* (one consumer has it, until a deadline) or *acked* (gone).

- **Bounded.** At most `records` are in a channel that are not acked, and at most `size` bytes of
  batches; a batch's bytes are given back with its last record, since they are kept in one piece.
- **Once in.** A producer numbers its records from 1. What it sends again after a broken connection
  has numbers that are known, and is not put a second time.
- **Once used.** A batch can name the ids of another channel that it was made from. If one of them
  was used before, nothing is put: whoever made it was too late, and is told which were used.
- **At least once out.** A lease that ends without an ack (its holder has gone, was too slow, or
  gave it back) makes its records wait again, before all newer ones. The first ack of a record
  counts, whoever sends it: it means that the work was done.
- **Closed** when as many producers as were declared have finished, or anyone closes it. Nothing
  is put then; what is there is still handed out, and when all is acked the channel is drained.
  A producer that puts again before that had not finished.

Pure: time is an argument, in milliseconds. Ids in a row that share a state are one `Piece`, so a
batch costs the same however many records it has.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from folkmoot.unified.channel.intervals import IdRange, Intervals

Sources = Mapping[str, Sequence[tuple[int, int]]]


class ChannelRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is declared of a channel."""

    records: int = 4096  # not acked, at once
    size: int = 256 * 1024 * 1024  # bytes of theirs
    lease_ms: int = 60_000  # then a record that is not acked is handed to another consumer
    producers: int = 1  # so many finish before it is closed


class Piece(msgspec.Struct):
    """Ids of one batch in a row that are in the same state; waiting when nobody holds them."""

    first: int
    end: int
    batch: int  # the first id of its batch
    holder: str = ""
    deadline: int = 0

    @property
    def count(self) -> int:
        return self.end - self.first


class QueuedBatch(msgspec.Struct):
    """Records that were put together; `left` of them are not acked."""

    first: int
    count: int
    size: int
    left: int
    at: int


class Accepted(NamedTuple):
    first: int


class Duplicate(NamedTuple):
    """The producer has put this before; `last` is its highest number that is in."""

    last: int


class Full(NamedTuple):
    """There is no room now."""


class PutRefused(NamedTuple):
    """Nothing was put, and will not be: the sentence says why."""

    reason: str


class Used(NamedTuple):
    """Nothing was put: these sources were used by an earlier batch."""

    spans: dict[str, list[IdRange]]


Answer = Accepted | Duplicate | Full | PutRefused | Used


class Queue:
    """What is in a channel and who holds it."""

    def __init__(self, rules: ChannelRules) -> None:
        self.rules = rules
        self.next_id = 1
        self.last: dict[str, int] = {}  # of each producer, the highest number that is in
        self.used: dict[str, Intervals] = {}
        self.finished: set[str] = set()
        self.closed = False
        self.depth = self.size = self.leased = self.redelivered = 0
        self.batches: dict[int, QueuedBatch] = {}
        self._pieces: dict[int, Piece] = {}  # by their first id
        self._firsts: list[int] = []  # the same ids, in order
        self._waiting: list[int] = []  # a heap of first ids; some are out of date
        self._deadlines: list[tuple[int, int]] = []  # (deadline, first id), the same

    @property
    def waiting(self) -> int:
        return self.depth - self.leased

    @property
    def drained(self) -> bool:
        return self.closed and not self.depth

    def offer(
        self, producer: str, number: int, count: int, size: int, sources: Sources, now: int
    ) -> Answer:
        """Put records, the first of which has this number of its producer's."""
        last = self.last.get(producer, 0)
        if count and number + count - 1 <= last:
            return Duplicate(last)
        if used := self._already_used(sources):
            return Used(used)
        if reason := self._never_fits(producer, number, last, count, size):
            return PutRefused(reason)
        if self.depth + count > self.rules.records or self.size + size > self.rules.size:
            return Full()
        first = self.next_id
        self.enter(first, count, size, now)
        self.account(producer, number + count - 1, sources)
        return Accepted(first)

    def enter(self, first: int, count: int, size: int, now: int) -> None:
        """A batch is in: now, or when a log is read."""
        self.next_id = max(self.next_id, first + count)
        if not count:
            return
        self.batches[first] = QueuedBatch(first, count, size, count, now)
        self.depth += count
        self.size += size
        self._add(Piece(first, first + count, first))
        heapq.heappush(self._waiting, first)

    def account(self, producer: str, last: int, sources: Sources) -> None:
        """Remember what a batch came from."""
        self.last[producer] = max(last, self.last.get(producer, 0))
        self.finished.discard(producer)
        for channel, spans in sources.items():
            used = self.used.setdefault(channel, Intervals())
            for first, end in spans:
                used.add(first, end)

    def take(self, holder: str, limit: int, now: int) -> list[Piece]:
        """Lease the oldest waiting records, up to so many; none when none are waiting."""
        taken: list[Piece] = []
        while limit > 0 and self._waiting:
            piece = self._pieces.get(heapq.heappop(self._waiting))
            if piece is None or piece.holder:
                continue
            if piece.count > limit:
                self._cut(piece, piece.first + limit)
            piece.holder = holder
            self.leased += piece.count
            self._set_deadline(piece, now)
            limit -= piece.count
            taken.append(piece)
        return taken

    def ack(self, spans: Iterable[tuple[int, int]]) -> tuple[int, list[int]]:
        """How many records are over only now, and the batches that are over with them."""
        counted, over = 0, []
        for first, end in spans:
            for piece in self._covering(first, end):
                counted += piece.count
                if self._remove(piece):
                    over.append(piece.batch)
        return counted, over

    def give_back(self, holder: str, spans: Iterable[tuple[int, int]] | None = None) -> int:
        """These records of a holder wait again, or all it has; how many."""
        if spans is None:
            pieces = [piece for piece in self._pieces.values() if piece.holder == holder]
        else:
            found = (self._covering(first, end) for first, end in spans)
            pieces = [piece for some in found for piece in some if piece.holder == holder]
        for piece in pieces:
            self._free(piece)
        return sum(piece.count for piece in pieces)

    def extend(self, holder: str, spans: Iterable[tuple[int, int]], now: int) -> None:
        """A holder needs longer."""
        for first, end in spans:
            for piece in self._covering(first, end):
                if piece.holder == holder:
                    self._set_deadline(piece, now)

    def expire(self, now: int) -> int:
        """Leases whose time is over end; how many records wait again."""
        expired = 0
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            piece = self._pieces[heapq.heappop(self._deadlines)[1]]
            self._free(piece)
            expired += piece.count
        return expired

    def next_deadline(self) -> int | None:
        """When the next lease ends."""
        while self._deadlines:
            deadline, first = self._deadlines[0]
            piece = self._pieces.get(first)
            if piece is not None and piece.holder and piece.deadline == deadline:
                return deadline
            heapq.heappop(self._deadlines)
        return None

    def finish(self, producer: str) -> None:
        """A producer has put its last record."""
        self.finished.add(producer)
        if len(self.finished) >= self.rules.producers:
            self.closed = True

    def close(self) -> None:
        self.closed = True

    def not_acked(self, batch: int) -> list[IdRange]:
        """What is left of a batch."""
        held = self.batches[batch]
        pieces = self._overlapping(held.first, held.first + held.count)
        return list(Intervals((piece.first, piece.end) for piece in pieces))

    def _already_used(self, sources: Sources) -> dict[str, list[IdRange]]:
        found = {
            channel: [part for first, end in spans for part in used.within(first, end)]
            for channel, spans in sources.items()
            if (used := self.used.get(channel))
        }
        return {channel: spans for channel, spans in found.items() if spans}

    def _never_fits(self, producer: str, number: int, last: int, count: int, size: int) -> str:
        if self.closed:
            return "the channel is closed"
        if number != last + 1:
            return f"{producer} sent record {number}, but {last + 1} is the next"
        if count > self.rules.records:
            return f"{count} records in one batch; the channel holds {self.rules.records}"
        if size > self.rules.size:
            return f"{size} bytes in one batch; the channel holds {self.rules.size}"
        return ""

    def _covering(self, first: int, end: int) -> list[Piece]:
        """The pieces that make up what is not acked of a span, cut at its borders."""
        for border in (first, end):
            at = bisect_right(self._firsts, border) - 1
            if at >= 0 and self._firsts[at] < border < self._pieces[self._firsts[at]].end:
                self._cut(self._pieces[self._firsts[at]], border)
        return self._overlapping(first, end)

    def _overlapping(self, first: int, end: int) -> list[Piece]:
        low, high = bisect_left(self._firsts, first), bisect_left(self._firsts, end)
        return [self._pieces[at] for at in self._firsts[low:high]]

    def _cut(self, piece: Piece, border: int) -> None:
        rest = Piece(border, piece.end, piece.batch, piece.holder, piece.deadline)
        piece.end = border
        self._add(rest)
        if rest.holder:
            heapq.heappush(self._deadlines, (rest.deadline, border))
        else:
            heapq.heappush(self._waiting, border)

    def _set_deadline(self, piece: Piece, now: int) -> None:
        piece.deadline = now + self.rules.lease_ms
        heapq.heappush(self._deadlines, (piece.deadline, piece.first))

    def _free(self, piece: Piece) -> None:
        piece.holder = ""
        self.leased -= piece.count
        self.redelivered += piece.count
        heapq.heappush(self._waiting, piece.first)

    def _add(self, piece: Piece) -> None:
        self._pieces[piece.first] = piece
        if not self._firsts or piece.first > self._firsts[-1]:
            self._firsts.append(piece.first)
        else:
            self._firsts.insert(bisect_left(self._firsts, piece.first), piece.first)

    def _remove(self, piece: Piece) -> bool:
        """Forget a piece; whether its batch is over."""
        del self._pieces[piece.first]
        del self._firsts[bisect_left(self._firsts, piece.first)]
        self.depth -= piece.count
        self.leased -= piece.count if piece.holder else 0
        batch = self.batches[piece.batch]
        batch.left -= piece.count
        if batch.left:
            return False
        self.size -= batch.size
        del self.batches[piece.batch]
        return True
