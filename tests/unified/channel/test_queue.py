"""The rules of a channel against a dumb model that keeps every record by itself."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from folkmoot.unified.channel.intervals import IdRange, Intervals, spans_of
from folkmoot.unified.channel.queue import (
    Accepted,
    ChannelRules,
    Duplicate,
    Full,
    PutRefused,
    Queue,
    Used,
)

RULES = ChannelRules(records=12, size=100, lease_ms=10, producers=2)


@dataclass
class Record:
    batch: int
    holder: str = ""
    deadline: int = 0


@dataclass
class Model:
    """One entry a record, and every question answered by looking at all of them."""

    records: dict[int, Record] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    next_id: int = 1

    @property
    def size(self) -> int:
        return sum(self.sizes[batch] for batch in {r.batch for r in self.records.values()})

    def fits(self, count: int, size: int) -> bool:
        return len(self.records) + count <= RULES.records and self.size + size <= RULES.size

    def put(self, count: int, size: int) -> None:
        self.sizes[self.next_id] = size
        for number in range(count):
            self.records[self.next_id + number] = Record(self.next_id)
        self.next_id += count

    def take(self, holder: str, limit: int, now: int) -> list[int]:
        ids = [i for i in sorted(self.records) if not self.records[i].holder][:limit]
        for i in ids:
            self.records[i].holder = holder
            self.records[i].deadline = now + RULES.lease_ms
        return ids

    def free(self, ids: list[int]) -> None:
        for i in ids:
            self.records[i].holder = ""


class Channels(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue, self.model, self.now = Queue(RULES), Model(), 0
        self.last = {"p": 0, "q": 0}

    @rule(producer=st.sampled_from("pq"), count=st.integers(0, 6), size=st.integers(0, 40))
    def put(self, producer: str, count: int, size: int) -> None:
        number = self.last[producer] + 1
        answer = self.queue.offer(producer, number, count, size, {}, self.now)
        if not self.model.fits(count, size):
            assert answer == Full()
            return
        assert answer == Accepted(self.model.next_id)
        self.model.put(count, size)
        self.last[producer] += count

    @rule(producer=st.sampled_from("pq"), back=st.integers(1, 5))
    def send_again(self, producer: str, back: int) -> None:
        last = self.last[producer]
        if last >= back:
            answer = self.queue.offer(producer, last - back + 1, back, 1, {}, self.now)
            assert answer == Duplicate(last)

    @rule(producer=st.sampled_from("pq"), gap=st.integers(2, 4))
    def leave_one_out(self, producer: str, gap: int) -> None:
        answer = self.queue.offer(producer, self.last[producer] + gap, 1, 1, {}, self.now)
        assert isinstance(answer, PutRefused)

    @rule(holder=st.sampled_from("ab"), limit=st.integers(1, 8))
    def take(self, holder: str, limit: int) -> None:
        pieces = self.queue.take(holder, limit, self.now)
        ids = [i for piece in pieces for i in range(piece.first, piece.end)]
        assert ids == self.model.take(holder, limit, self.now)

    @rule(first=st.integers(1, 60), count=st.integers(1, 9))
    def ack(self, first: int, count: int) -> None:
        ids = [i for i in range(first, first + count) if i in self.model.records]
        batches = {self.model.records[i].batch for i in ids}
        for i in ids:
            del self.model.records[i]
        left = {record.batch for record in self.model.records.values()}
        counted, over = self.queue.ack([(first, first + count)])
        assert counted == len(ids)
        assert sorted(over) == sorted(batches - left)

    @rule(holder=st.sampled_from("ab"))
    def die(self, holder: str) -> None:
        ids = [i for i, record in self.model.records.items() if record.holder == holder]
        assert self.queue.give_back(holder) == len(ids)
        self.model.free(ids)

    @rule(holder=st.sampled_from("ab"), first=st.integers(1, 60), count=st.integers(1, 9))
    def give_back(self, holder: str, first: int, count: int) -> None:
        ids = [i for i in range(first, first + count) if i in self.model.records]
        ids = [i for i in ids if self.model.records[i].holder == holder]
        assert self.queue.give_back(holder, [(first, first + count)]) == len(ids)
        self.model.free(ids)

    @rule(holder=st.sampled_from("ab"), first=st.integers(1, 60), count=st.integers(1, 9))
    def extend(self, holder: str, first: int, count: int) -> None:
        self.queue.extend(holder, [(first, first + count)], self.now)
        for i in range(first, first + count):
            if i in self.model.records and self.model.records[i].holder == holder:
                self.model.records[i].deadline = self.now + RULES.lease_ms

    @rule(passed=st.integers(1, 12))
    def wait(self, passed: int) -> None:
        self.now += passed
        late = [i for i, r in self.model.records.items() if r.holder and r.deadline <= self.now]
        assert self.queue.expire(self.now) == len(late)
        self.model.free(late)

    @precondition(lambda self: self.queue.batches)
    @rule(data=st.data())
    def read_back(self, data: st.DataObject) -> None:
        batch = data.draw(st.sampled_from(sorted(self.queue.batches)))
        ids = [i for i, record in self.model.records.items() if record.batch == batch]
        assert self.queue.not_acked(batch) == spans_of(ids)

    @invariant()
    def counts_agree(self) -> None:
        records = self.model.records.values()
        assert self.queue.depth == len(records) <= RULES.records
        assert self.queue.leased == sum(bool(record.holder) for record in records)
        assert self.queue.size == self.model.size <= RULES.size
        deadlines = [record.deadline for record in records if record.holder]
        assert self.queue.next_deadline() == min(deadlines, default=None)


TestChannels = Channels.TestCase
TestChannels.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)))


@given(SPANS, st.integers(0, 45), st.integers(0, 12))
def test_intervals_are_a_set_of_numbers(added: list[tuple[int, int]], at: int, count: int) -> None:
    spans = [(first, first + length) for first, length in added]
    intervals, numbers = Intervals(spans), {i for first, end in spans for i in range(first, end)}
    assert len(intervals) == len(numbers)
    assert spans_of(numbers) == list(intervals)
    assert [i for i in range(60) if i in intervals] == sorted(numbers)
    found = [i for span in intervals.within(at, at + count) for i in range(*span)]
    assert found == sorted(numbers & set(range(at, at + count)))


def test_what_was_made_from_used_records_is_not_put() -> None:
    queue = Queue(RULES)
    assert queue.offer("p", 1, 1, 1, {"raw": [(1, 4)]}, 0) == Accepted(1)
    late = queue.offer("q", 1, 1, 1, {"raw": [(3, 6)]}, 0)
    assert late == Used({"raw": [IdRange(3, 4)]})
    assert queue.offer("q", 1, 1, 1, {"raw": [(4, 6)]}, 0) == Accepted(2)


def test_an_empty_batch_uses_its_sources() -> None:
    queue = Queue(RULES)
    assert queue.offer("p", 1, 0, 0, {"raw": [(1, 4)]}, 0) == Accepted(1)
    assert queue.offer("p", 1, 0, 0, {"raw": [(1, 4)]}, 0) == Used({"raw": [IdRange(1, 4)]})
    assert queue.depth == 0


def test_a_channel_closes_when_all_declared_producers_have_finished() -> None:
    queue = Queue(RULES)
    queue.offer("p", 1, 2, 1, {}, 0)
    queue.finish("p")
    queue.finish("p")
    assert not queue.closed
    queue.finish("q")
    assert queue.closed
    assert not queue.drained
    assert queue.offer("r", 1, 1, 1, {}, 0) == PutRefused("the channel is closed")
    queue.ack([(1, 3)])
    assert queue.drained


def test_a_producer_that_puts_again_had_not_finished() -> None:
    queue = Queue(RULES)
    queue.finish("p")
    assert queue.offer("p", 1, 1, 1, {}, 0) == Accepted(1)
    queue.finish("q")
    assert not queue.closed
    queue.finish("p")
    assert queue.closed


def test_a_batch_that_never_fits_is_refused_at_once() -> None:
    queue = Queue(RULES)
    assert isinstance(queue.offer("p", 1, 13, 1, {}, 0), PutRefused)
    assert isinstance(queue.offer("p", 1, 1, 101, {}, 0), PutRefused)


def test_returned_records_come_before_newer_ones() -> None:
    queue = Queue(RULES)
    queue.offer("p", 1, 2, 1, {}, 0)
    queue.take("a", 2, 0)
    queue.offer("p", 3, 2, 1, {}, 0)
    queue.give_back("a")
    assert [(piece.first, piece.end) for piece in queue.take("b", 3, 0)] == [(1, 3), (3, 4)]
