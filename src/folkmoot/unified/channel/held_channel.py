"""A channel, where it is held: what is kept, and those who wait to put or to get.

What the ends of the channel sent is carried out as it comes; then `settle` writes it down, and only
after that anybody hears of it. So a record that somebody was given, or was told is in, is in the
spool: a successor gives it the same id, and an ack that comes late acks the right one.

A producer whose batch finds no room is not read any further until there is room; its socket fills
up, and then it waits. Consumers wait here for records, in turn.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from folkmoot.unified.channel.durable_queue import DurableQueue, now_ms
from folkmoot.unified.channel.messages import (
    IN_FRAME,
    Confirmed,
    Delivery,
    Done,
    Failed,
    Get,
    HeapRegion,
    Ids,
    Message,
    Put,
    Slice,
    Stats,
    WereUsed,
)
from folkmoot.unified.channel.metrics import Metrics
from folkmoot.unified.channel.queue import (
    Accepted,
    ChannelRules,
    Full,
    Piece,
    PutRefused,
    Used,
)
from folkmoot.unified.channel.spool import Buffer
from folkmoot.unified.channel.stored import Cut, Stored


class End(Protocol):
    """A connection to a producer or a consumer."""

    id: str
    producer: str
    heap: str
    local: bool  # on this machine, so that it can map what lies in a heap

    def send(self, message: Message, parts: Sequence[Buffer] = ()) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Getter(NamedTuple):
    end: End
    limit: int
    until: int | None


class Putter(NamedTuple):
    end: End
    put: Put
    body: memoryview


class HeldChannel:
    """For one thread. `settle` after each call that changes something."""

    def __init__(self, name: str, rules: ChannelRules, folder: Path) -> None:
        self.name, self.rules, self.folder = name, rules, folder
        self.durable, self.metrics = DurableQueue(rules, folder), Metrics()
        self.queue, self._heaps = self.durable.queue, self.durable.heaps
        self._ends: dict[str, End] = {}
        self._putters: deque[Putter] = deque()
        self._getters: deque[Getter] = deque()
        self._confirm: dict[str, End] = {}
        self._told: list[tuple[End, Message]] = []

    # What ends ask for.

    def join(self, end: End) -> None:
        self._ends[end.id] = end
        if end.heap:
            self._heaps.own(end.heap)

    def leave(self, end: End, gone: bool) -> None:
        """An end asks for no more; if it is `gone`, it also looks at nothing any more."""
        self.queue.give_back(end.id)
        self._getters = deque(getter for getter in self._getters if getter.end is not end)
        if gone:
            self._ends.pop(end.id, None)
            self._confirm.pop(end.id, None)
            self._putters = deque(putter for putter in self._putters if putter.end is not end)
            self._heaps.gone(end.id)
            if end.heap:
                self._heaps.disown(end.heap)

    def rival(self, end: End) -> End | None:
        """An older connection of the same producer."""
        ends = self._ends.values()
        return next((one for one in ends if one.producer == end.producer and one is not end), None)

    def put(self, end: End, put: Put, body: memoryview) -> None:
        if any(putter.end is end for putter in self._putters):
            self._putters.append(Putter(end, put, body))  # in the order they came
        elif not self._offer(end, put, body):
            self._putters.append(Putter(end, put, body))
            end.pause()

    def get(self, end: End, get: Get) -> None:
        self.ack(get.acks)
        self._heaps.released(end.id, get.released)
        until = None if get.wait < 0 else now_ms() + get.wait
        self._getters.append(Getter(end, get.limit, until))

    def cancel(self, end: End) -> None:
        """Whoever waits waits no longer."""
        now = now_ms()
        self._getters = deque(
            Getter(end, getter.limit, now) if getter.end is end else getter
            for getter in self._getters
        )

    def ack(self, ids: Ids) -> None:
        if ids and (counted := self.durable.ack(ids)):
            self.metrics.count_acked(counted, now_ms())

    def give_back(self, end: End, ids: Ids) -> None:
        self.queue.give_back(end.id, ids)

    def extend(self, end: End, ids: Ids) -> None:
        self.queue.extend(end.id, ids, now_ms())

    def released(self, end: End, regions: list[tuple[str, int]]) -> None:
        self._heaps.released(end.id, regions)

    def finish(self, end: End, everyone: bool) -> None:
        self.durable.finish("" if everyone else end.producer)
        self._told.append((end, Done()))

    def stats(self) -> Stats:
        queue, metrics, now = self.queue, self.metrics, now_ms()
        return Stats(
            *(queue.depth, queue.waiting, queue.leased, queue.size, metrics.put, metrics.acked),
            *(queue.redelivered, *metrics.rates(now), *metrics.waits(now)),
            *(len({putter.end.id for putter in self._putters}), len(self._getters)),
            queue.closed,
        )

    # What follows from it.

    def settle(self) -> int | None:
        """Write down what happened, then tell; when to settle again, in ms, if nothing comes."""
        now = now_ms()
        self.queue.expire(now)
        self._admit()
        deliveries = list(self._serve(now))
        self.durable.commit()
        self._tell()
        for getter, pieces in deliveries:
            self._deliver(getter.end, pieces)
        self.durable.tidy()
        return self._next(now)

    def close(self) -> None:
        self.durable.close()

    def _admit(self) -> None:
        """Let in what waited for room, in turn."""
        while self._putters and self._offer(*self._putters[0]):
            putter = self._putters.popleft()
            if not any(other.end is putter.end for other in self._putters):
                putter.end.resume()

    def _offer(self, end: End, put: Put, body: memoryview) -> bool:
        """Whether it need not be tried again."""
        answer = self.durable.offer(end.producer, end.heap, put, body)
        if isinstance(answer, Full):
            return False
        if isinstance(answer, Accepted):
            self.metrics.count_put(len(put.sizes), now_ms())
        if isinstance(answer, Used):
            spans = {name: list(map(tuple, some)) for name, some in answer.spans.items()}
            self._told.append((end, WereUsed(put.number, spans)))  # type: ignore[arg-type]
        elif isinstance(answer, PutRefused):
            self._told.append((end, Failed(answer.reason, self.queue.closed)))
        else:
            self._confirm[end.id] = end
        if not isinstance(answer, Accepted):
            self._heaps.unused(end.heap, put.offsets)
        return True

    def _serve(self, now: int) -> Iterator[tuple[Getter, list[Piece]]]:
        waiting = deque[Getter]()
        while self._getters:
            getter = self._getters.popleft()
            pieces = self.queue.take(getter.end.id, getter.limit, now)
            over = getter.until is not None and getter.until <= now
            if pieces or over or self.queue.drained:
                yield getter, pieces
            else:
                waiting.append(getter)
        self._getters = waiting

    def _tell(self) -> None:
        """An end that turns out to be gone leaves meanwhile, so what is told is taken first."""
        confirm, self._confirm = self._confirm, {}
        told, self._told = self._told, []
        freed, self._heaps.freed = self._heaps.freed, {}
        if freed:
            confirm |= {end.id: end for end in self._ends.values() if end.heap in freed}
        for end in confirm.values():
            last = self.queue.last.get(end.producer, 0)
            end.send(Confirmed(last, freed.get(end.heap, [])))
        for end, message in told:
            end.send(message)

    def _deliver(self, end: End, pieces: list[Piece]) -> None:
        ids, sizes, regions, bodies = [], list[int](), list[HeapRegion](), list[Slice]()
        parts: list[Buffer] = []
        now = now_ms()
        for piece in pieces:
            self.metrics.count_wait(piece.count, now - self.queue.batches[piece.batch].at, now)
            cut, batch = self.durable.cut(piece)
            if batch.heap and not end.local:
                cut = self.durable.inline(cut, batch)
            for offset, length in cut.regions:
                self._heaps.read(batch.heap, offset, end.id)
                regions.append(HeapRegion(batch.heap, offset, length))
            bodies.append(self._slice(end, batch, cut))
            ids.append((piece.first, piece.end))
            sizes += cut.sizes
            parts.append(cut.body)
        if not any(body.length for body in bodies):
            bodies = []
        drained, more = self.queue.drained, self.queue.waiting > 0
        end.send(Delivery(ids, sizes, regions, drained, bodies, more), parts)

    def _slice(self, end: End, batch: Stored, cut: Cut) -> Slice:
        if not cut.length:
            return IN_FRAME
        self._heaps.read(batch.heap, batch.lies[0], end.id)
        return Slice(batch.heap, batch.lies[0], cut.begin, cut.length)

    def _next(self, now: int) -> int | None:
        times = [getter.until for getter in self._getters if getter.until is not None]
        if (deadline := self.queue.next_deadline()) is not None:
            times.append(deadline)
        return max(0, min(times) - now) if times else None
