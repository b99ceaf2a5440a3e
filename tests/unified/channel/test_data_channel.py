"""What a channel promises to those who use it, over both kinds of sockets."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import pytest

from folkmoot.unified.channel import (
    AlreadyUsed,
    Batch,
    ChannelError,
    ChannelLost,
    Closed,
    DataChannel,
    Drained,
    Left,
    durable_queue,
    held_channel,
)
from folkmoot.unified.channel.outbox import Outbox
from folkmoot.unified.rpc.errors import Unauthorised
from support.channels import Held

Hold = Callable[..., Held]
LARGE = 300_000


def put_and_flush(channel: DataChannel, record: object) -> None:
    channel.put(record)
    channel.flush()


def drain(channel: DataChannel, limit: int = 7) -> list[Any]:
    return [record for batch in channel.batches(limit) for record in batch]


@contextmanager
def waiting(consumer: DataChannel, other: DataChannel) -> Iterator[Future[Batch]]:
    """A `get` that has found nothing yet, as another end sees."""
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(consumer.get)
        while not other.stats().starved:
            pass
        yield got


def test_records_come_out_in_the_order_they_were_put(hold: Hold) -> None:
    channel = hold().end()
    channel.put_many(range(200))
    for number in range(200, 300):
        channel.put(number)
    channel.finish()
    assert drain(channel) == list(range(300))


def test_get_waits_for_a_record(hold: Hold) -> None:
    """P5: an empty channel gave nothing at once, and its consumers asked in a loop."""
    held = hold()
    consumer, producer = held.end(), held.end()
    with waiting(consumer, producer) as got:
        producer.put("late")
        assert got.result(60).records == ["late"]


def test_get_gives_up_when_it_was_told_to(hold: Hold) -> None:
    channel = hold().end()
    with pytest.raises(TimeoutError, match=r"c had no record for 0\.05 seconds"):
        channel.get(timeout=0.05)
    channel.put(1)
    assert channel.get(timeout=60).records == [1]


def test_a_full_channel_holds_producers_back(hold: Hold) -> None:
    held = hold(records=4)
    producer, consumer = held.end(), held.end()
    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(producer.put_many, range(100))
        while not consumer.stats().blocked:
            pass
        assert consumer.stats().depth == 4
        got: list[int] = []
        while len(got) < 100:
            with consumer.get(3) as batch:
                got += batch
                assert consumer.stats().depth <= 4
        putting.result(60)
    assert got == list(range(100))


def test_put_gives_up_when_it_was_told_to(hold: Hold) -> None:
    held = hold(records=1)
    producer = held.end()
    put: list[int] = []
    with pytest.raises(TimeoutError, match="c had no room"):
        put.extend(_putting(producer))
    with ThreadPoolExecutor(1) as pool:
        finishing = pool.submit(producer.finish)
        assert drain(held.end()) == put
        finishing.result(60)


def _putting(producer: DataChannel) -> Iterator[int]:
    for number in count():
        producer.put(number, timeout=0.05)
        yield number


def test_records_of_a_consumer_that_left_go_to_others(hold: Hold) -> None:
    held = hold()
    first, second = held.end(), held.end()
    second.put_many("abc")
    assert first.get(2).records == ["a", "b"]
    first.leave()
    assert second.get(3).records == ["a", "b", "c"]
    assert second.stats().redelivered == 2


def test_a_consumer_that_hangs_loses_its_lease_but_its_ack_counts(hold: Hold) -> None:
    held = hold(lease_ms=50)
    slow, quick = held.end(), held.end()
    slow.put(1)
    late = slow.get()
    again = quick.get()
    assert (again.records, again.ids) == (late.records, late.ids)
    late.ack()
    slow.close()
    with pytest.raises(Drained):
        quick.get()


def test_a_lease_can_be_extended(hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    for module in (held_channel, durable_queue):
        monkeypatch.setattr(module, "now_ms", lambda: now)
    held = hold(lease_ms=400)
    slow, quick = held.end(), held.end()
    slow.put(1)
    batch = slow.get()
    for _ in range(3):
        now += 300
        batch.extend()
        for consumer in (slow, quick):  # the first goes the way of what extends, and after it
            with pytest.raises(TimeoutError):
                consumer.get(timeout=0)
    now += 400
    assert quick.get(timeout=0).records == [1]


def test_an_error_gives_records_back(hold: Hold) -> None:
    channel = hold().end()
    channel.put(1)
    with pytest.raises(ZeroDivisionError), channel.get() as batch:
        _ = batch[0] / 0
    assert channel.get(timeout=60).records == [1]


def test_a_closed_channel_is_drained_before_its_end(hold: Hold) -> None:
    held = hold(producers=2)
    first, second, consumer = held.end(), held.end(), held.end()
    first.put(1)
    first.finish()
    second.put(2)
    second.finish()
    with pytest.raises(Closed):
        put_and_flush(held.end(), 3)
    assert sorted(drain(consumer)) == [1, 2]
    with pytest.raises(Drained):
        consumer.get()


def test_nobody_is_told_of_the_end_while_records_are_leased(hold: Hold) -> None:
    """Their holder may die, and then there is work."""
    held = hold()
    holder, other = held.end(), held.end()
    holder.put(1)
    holder.finish()
    holder.get()
    with pytest.raises(TimeoutError):
        other.get(timeout=0.05)
    holder.leave()
    assert other.get().records == [1]


def test_large_arrays_come_out_as_they_went_in(hold: Hold) -> None:
    held = hold(size=3_000_000)
    producer, consumer = held.end(), held.end()
    arrays = [np.full(LARGE, number, np.uint8) for number in range(40)]

    def put() -> None:
        for number, array in enumerate(arrays):
            producer.put({"number": number, "array": array, "small": [1, 2]})
        producer.finish()

    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(put)
        for number, record in enumerate(r for batch in consumer.batches(3) for r in batch):
            assert record["number"] == number
            assert record["array"].flags.aligned
            assert np.array_equal(record["array"], arrays[number])
            record["array"][:] = 0  # ours alone
            del record
        putting.result(60)


def use_all_room(held: Held, producer: DataChannel) -> None:
    """Put and get more than the channel has room for."""
    for number in range(2, 30):
        producer.put(np.full(LARGE, number, np.uint8), timeout=60)
        with held.end().get() as batch:
            assert batch[0][0] == number


def test_an_array_in_use_is_not_written_over(hold: Hold) -> None:
    held = hold(size=2_000_000)
    producer, consumer = held.end(), held.end()
    producer.put(np.full(LARGE, 1, np.uint8))
    with consumer.get() as batch:
        kept = batch[0]
    consumer.leave()
    use_all_room(held, producer)
    assert (kept == 1).all()


def test_an_array_in_use_is_not_written_over_when_one_who_waits_is_made_to_leave(
    hold: Hold,
) -> None:
    held = hold(size=2_000_000)
    producer, consumer = held.end(), held.end()
    producer.put(np.full(LARGE, 1, np.uint8))
    with consumer.get() as batch:
        kept = batch[0]
    with waiting(consumer, producer) as got:
        consumer.leave()
        with pytest.raises(Left):
            got.result(60)
    use_all_room(held, producer)
    assert (kept == 1).all()


def test_an_array_that_one_consumer_got_twice_is_kept_for_both(hold: Hold) -> None:
    held = hold(size=2_000_000, lease_ms=50)
    producer, consumer = held.end(), held.end()
    producer.put(np.full(LARGE, 1, np.uint8))
    first = consumer.get()
    again = consumer.get()  # when the lease is over
    again.ack()
    kept = again[0]
    del first
    use_all_room(held, producer)
    assert (kept == 1).all()


def test_an_array_that_one_consumer_got_twice_is_as_it_was_put(hold: Hold) -> None:
    held = hold(size=2_000_000, lease_ms=50)
    producer, consumer = held.end(), held.end()
    producer.put(np.full(LARGE, 1, np.uint8))
    first = consumer.get()
    first[0][:] = 2
    again = consumer.get()  # when the lease is over
    assert (again[0] == 1).all()
    again[0][:] = 3
    assert (first[0] == 2).all()
    del first
    consumer.stats()
    assert (again[0] == 3).all()


def test_room_that_became_free_while_a_batch_was_sent_is_used(
    hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more comes then, so a producer that waited for it would wait for ever."""
    held = hold(size=2_000_000)
    producer, consumer = held.end(), held.end()
    kept = []
    for number in range(10):  # all acked, and none given back: the heap has room for 13
        put_and_flush(producer, np.full(LARGE, number, np.uint8))
        with consumer.get() as batch:
            kept.append(batch[0])

    def late(outbox: Outbox) -> None:
        """As in a process that gets no processor before all is answered."""
        monkeypatch.undo()
        kept.clear()
        heap = outbox.heap
        outbox.wait(lambda: not outbox.pending and (heap is None or len(heap.regions) <= 3), None)
        outbox._drain()

    del batch
    monkeypatch.setattr(Outbox, "_drain", late)
    producer.put_many([np.full(LARGE, number, np.uint8) for number in range(4)])
    producer.finish()
    assert [int(record[-1]) for record in drain(consumer)] == [0, 1, 2, 3]


def test_small_records_that_are_many_outlive_their_producer_and_the_broker(hold: Hold) -> None:
    held = hold()
    producer, consumer = held.end(), held.end()
    texts = [f"{number} " * 200 for number in range(1000)]
    producer.put_many(texts[:500])
    for text in texts[500:]:
        producer.put(text)
    producer.finish()
    producer.leave()
    with consumer.get(100) as batch:  # a part of what lies together
        assert batch.records == texts[:100]
    while consumer.stats().depth > 900:
        pass  # until the ack has arrived
    held.replace_broker()
    assert drain(held.end(), 300) == texts[100:]
    assert not consumer.stats().depth


def test_small_arrays_are_ones_own(hold: Hold) -> None:
    held = hold()
    producer, consumer = held.end(), held.end()
    producer.put_many([np.full(10_000, number, np.uint8) for number in range(20)])
    producer.finish()
    got = []
    for batch in consumer.batches(3):
        for record in batch:
            record += 1
            got.append(record)
    assert [int(record[-1]) for record in got] == list(range(1, 21))


def test_small_and_large_records_of_any_kind_keep_their_order(hold: Hold) -> None:
    held = hold(size=1024 * 1024)
    producer, consumer = held.end(), held.end()
    some = [b"", b"small" * 10, "text", 7, bytes(70_000), "long" * 20_000, None, bytes(20_000)]

    def fill() -> None:
        for record in some * 30:
            producer.put(record)
        producer.finish()

    with ThreadPoolExecutor(1) as pool:
        filling = pool.submit(fill)
        assert drain(consumer, 100) == some * 30
        filling.result(60)


def test_heap_files_go_when_nobody_needs_them(hold: Hold) -> None:
    held = hold()
    producer, consumer = held.end(), held.end()
    producer.put(np.ones(LARGE))
    producer.leave()
    with consumer.get() as batch:
        assert batch[0].sum() == LARGE
    assert not consumer.stats().depth
    del batch
    while list(held.folder.glob("c/heap.*")):
        consumer.stats()  # it takes a moment until the broker is told


def test_what_is_too_large_is_refused_with_advice(hold: Hold) -> None:
    channel = hold(size=100_000).end()
    with pytest.raises(ChannelError, match=r"the channel c holds \d+ of 100000: declare it larger"):
        channel.put(np.ones(LARGE))


def test_a_broker_that_ends_is_followed_by_another(hold: Hold) -> None:
    held = hold()
    producer, consumer = held.end(), held.end()
    producer.put_many([1, 2, np.full(LARGE, 3, np.uint8)])
    producer.flush()
    batch = consumer.get(1)
    held.replace_broker()
    batch.ack()
    producer.put_many([np.full(LARGE, 4, np.uint8), 5])
    producer.finish()
    rest = drain(consumer, 2)
    assert [int(np.max(record)) for record in rest] == [2, 3, 4, 5]


def test_those_who_wait_come_back_to_the_next_broker(hold: Hold) -> None:
    held = hold()
    producer, consumer = held.end(), held.end()
    with waiting(consumer, producer) as got:
        held.replace_broker()
        producer.put(1)
        assert got.result(60).records == [1]


def test_a_long_life_is_written_anew_again_and_again(hold: Hold) -> None:
    held = hold(records=300)
    channel = held.end()
    channel.put("held back")  # stays in the spool, whatever is written over
    channel.get(1)
    for number in range(60):
        channel.put_many([bytes(20_000)] * 20)
        channel.flush()
        for _ in range(20):
            channel.get(1).ack()
        if number % 20 == 19:
            held.replace_broker()
            assert channel.get(1).records == ["held back"]
    assert channel.stats().depth == 1
    assert sum(path.stat().st_size for path in held.folder.glob("c/spool.*")) < 20_000_000


def test_a_producer_that_comes_back_goes_on_where_it_was(hold: Hold) -> None:
    held = hold()
    first = held.end(producer="reader-0")
    first.put_many("abc")
    first.flush()
    second = held.end(producer="reader-0")
    assert second.next_number == 4
    second.put("d")
    second.finish()
    assert drain(held.end()) == ["a", "b", "c", "d"]


def test_what_was_made_twice_is_put_once(hold: Hold) -> None:
    held = hold()
    quick, slow = held.end(), held.end()
    quick.put_from(["from 1 to 3"], "raw", [1, 2, 3])
    with pytest.raises(AlreadyUsed) as refused:
        slow.put_from(["from 3 and 4"], "raw", [3, 4])
    assert refused.value.spans == {"raw": [(3, 4)]}
    slow.put_from(["from 4", np.ones(LARGE)], "raw", [4])
    slow.put("and so on")
    slow.finish()
    assert [r if isinstance(r, str) else r.sum() for r in drain(quick)] == [
        *("from 1 to 3", "from 4", LARGE, "and so on"),
    ]


def test_who_waits_can_be_made_to_leave(hold: Hold) -> None:
    held = hold()
    channel, other = held.end(), held.end()
    with waiting(channel, other) as got:
        channel.leave()
        with pytest.raises(Left):
            got.result(60)


def test_many_threads_share_an_end(hold: Hold) -> None:
    channel = hold(records=50).end()
    got: list[int] = []

    def put(start: int) -> None:
        for number in range(start, start + 200):
            channel.put(number)

    def consume() -> None:
        for batch in channel.batches(5):
            got.extend(batch)

    putting = [threading.Thread(target=put, args=(1000 * at,)) for at in range(3)]
    getting = [threading.Thread(target=consume) for _ in range(2)]
    for thread in (*putting, *getting):
        thread.start()
    for thread in putting:
        thread.join()
    channel.finish()
    for thread in getting:
        thread.join()
    assert sorted(got) == sorted(1000 * at + n for at in range(3) for n in range(200))


def test_a_stranger_is_refused(hold: Hold) -> None:
    held = hold()
    with pytest.raises(Unauthorised):
        DataChannel("c", held.address, b"some other secret").get()


def test_an_unknown_channel_is_named_with_those_that_are_there(hold: Hold) -> None:
    held = hold()
    with pytest.raises(ChannelError, match="there is no channel 'd' here; known: c"):
        DataChannel("d", held.address, b"the secret of the job").get()


def test_a_channel_that_nobody_holds_is_given_up_by_name(hold: Hold) -> None:
    held = hold()
    channel = held.end(patience=0.1)
    channel.put(1)
    channel.flush()
    held.broker.close()
    with pytest.raises(ChannelLost, match="nobody has held the channel c for"):
        channel.get()


def test_a_folder_is_held_by_one(hold: Hold) -> None:
    held = hold()
    with pytest.raises(ChannelError, match="is held by another process"):
        Held(held.folder, held.rules, held.address)
