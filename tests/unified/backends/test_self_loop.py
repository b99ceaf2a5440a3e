"""Workers between channels: what they were given, made and put is right whoever dies."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from folkmoot.core.job import ChannelSpec, JobSpec, RoleSpec
from folkmoot.unified.backends.self_loop import LoopWorker, SelfLoop, make_worker
from folkmoot.unified.channel import Broker, ChannelRules, DataChannel
from folkmoot.unified.channels import rules_of, with_holders
from folkmoot.unified.current import ActorInfo, CurrentWorker, JobInfo
from folkmoot.unified.entry import EntryError
from folkmoot.unified.rpc.directory import AddressBook

SECRET = b"the secret of the job"
NAMES = ("raw", "made", "other")


class Channels:
    def __init__(self, folder: Path) -> None:
        self.broker = Broker(folder, SECRET, dict.fromkeys(NAMES, ChannelRules()))
        self.address = self.broker.listen(f"unix:{folder}/socket")

    def end(self, name: str, producer: str | None = None) -> DataChannel:
        return DataChannel(name, self.address, SECRET, producer=producer, patience=10.0)

    def fill(self, name: str, records: Sequence[Any]) -> None:
        with self.end(name) as channel:
            channel.put_many(records)
            channel.finish()

    def rest(self, name: str) -> list[Any]:
        with self.end(name) as channel:
            channel.close()
            return [record for batch in channel.batches() for record in batch]


@pytest.fixture
def channels(tmp_path: Path) -> Iterator[Channels]:
    made = Channels(tmp_path / "channels")
    yield made
    made.broker.close()


def loop(channels: Channels, process: Any, *writes: str, size: int = 4) -> LoopWorker:
    ends = {name: channels.end(name) for name in writes}
    return LoopWorker(process, list, channels.end("raw"), ends, size)


def test_a_loop_ends_when_its_source_is_drained(channels: Channels) -> None:
    channels.fill("raw", range(10))
    worker = loop(channels, lambda batch: [2 * record for record in batch], "made")
    assert worker.start() == {"records": 10}
    assert channels.rest("made") == [2 * number for number in range(10)]
    assert channels.rest("raw") == []


def test_several_outputs_are_told_by_name(channels: Channels) -> None:
    channels.fill("raw", range(6))
    worker = loop(channels, lambda b: {"made": [sum(b)], "other": list(b)}, "made", "other")
    worker.start()
    assert sum(channels.rest("made")) == 15
    assert channels.rest("other") == list(range(6))


def test_one_that_died_before_its_ack_is_followed_without_a_trace(channels: Channels) -> None:
    channels.fill("raw", range(6))
    dies = channels.end("raw")
    batch = dies.get(4)
    channels.end("made").put_from([sum(batch)], "raw", batch.ids)
    dies.leave()  # as a killed process: its lease is over, and it acked nothing
    loop(channels, lambda batch: [sum(batch)], "made", size=6).start()
    assert channels.rest("made") == [0 + 1 + 2 + 3, 4 + 5]


def test_one_that_died_between_two_outputs_is_completed(channels: Channels) -> None:
    channels.fill("raw", range(4))
    dies = channels.end("raw")
    batch = dies.get(4)
    channels.end("made").put_from(["made by the first"], "raw", batch.ids)
    dies.leave()
    process = lambda b: {"made": ["again"], "other": [len(b)]}  # noqa: E731
    loop(channels, process, "made", "other").start()
    assert channels.rest("made") == ["made by the first"]
    assert channels.rest("other") == [4]


def test_stop_lets_the_batch_in_work_be_done(channels: Channels) -> None:
    with channels.end("raw") as source:
        source.put_many(range(3))
        source.flush()
    worker: LoopWorker

    def process(batch: Sequence[int]) -> list[int]:
        worker.stop()
        return list(batch)

    worker = loop(channels, process, "made", size=2)
    worker.start()
    assert channels.rest("made") == [0, 1]
    assert channels.rest("raw") == [2]


def test_stop_ends_a_loop_that_waits(channels: Channels) -> None:
    worker = loop(channels, list, "made")
    with ThreadPoolExecutor(1) as pool, channels.end("raw") as looking:
        running = pool.submit(worker.start)
        while not looking.stats().starved:
            pass
        worker.stop()
        assert running.result(60) == {"records": 0}


def test_a_source_goes_on_after_what_is_in(channels: Channels) -> None:
    def source(*records: str) -> LoopWorker:
        return LoopWorker(list, lambda: records, None, {"made": channels.end("made", "source-0")})

    source("a", "b").start()
    source("a", "b", "c", "d").start()
    assert channels.rest("made") == ["a", "b", "c", "d"]


def test_an_error_in_process_gives_the_batch_back(channels: Channels) -> None:
    channels.fill("raw", [1, 0])
    with pytest.raises(ZeroDivisionError):
        loop(channels, lambda batch: [1 / record for record in batch], "made").start()
    loop(channels, list, "made").start()
    assert channels.rest("made") == [1, 0]


@pytest.mark.parametrize(
    ("made", "writes", "complaint"),
    [
        ([1], ("made", "other"), "one list for 2 channels: give a dict by their names"),
        ({"mad": [1]}, ("made",), r"records for \['mad'\]"),
        ([1], (), "one list for 0 channels"),
    ],
)
def test_what_process_gives_must_fit(
    channels: Channels, made: Any, writes: tuple[str, ...], complaint: str
) -> None:
    channels.fill("raw", [1])
    with pytest.raises(TypeError, match=complaint):
        loop(channels, lambda _: made, *writes).start()


class Doubler(SelfLoop):
    batch_size = 2

    def __init__(self, by: int) -> None:
        self.by = by

    def process(self, batch: Sequence[int]) -> list[int]:
        return [self.by * record for record in batch]


def triple(batch: Sequence[int]) -> list[int]:
    return [3 * record for record in batch]


def current(channels: Channels, config: dict[str, Any]) -> CurrentWorker:
    actor = ActorInfo(name="loop-0", role="loop", config=config)
    return CurrentWorker(
        *(JobInfo(name="job"), actor),
        directory=AddressBook(),
        secret=SECRET,
        open_channel=lambda name: channels.end(name, "loop-0"),
    )


@pytest.mark.parametrize(("entry", "config", "by"), [("Doubler", {"by": 2}, 2), ("triple", {}, 3)])
def test_a_class_or_a_function_will_do(
    channels: Channels, entry: str, config: dict[str, int], by: int, monkeypatch: Any
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "user_code", __import__("sys").modules[__name__])
    role = RoleSpec(
        entry=f"user_code:{entry}", backend="self_loop", reads=("raw",), writes=("made",)
    )
    channels.fill("raw", [1, 2, 3])
    make_worker(role, current(channels, config)).start()
    assert channels.rest("made") == [by, 2 * by, 3 * by]


def test_a_role_with_nothing_to_do_is_refused(channels: Channels) -> None:
    role = RoleSpec(entry="user_code:triple", backend="self_loop")
    with pytest.raises(EntryError, match="reads one channel, or none and writes one"):
        make_worker(role, current(channels, {}))


def test_channels_that_name_no_holder_get_a_role() -> None:
    writer = RoleSpec(entry="x:y", total=3, writes=("made",))
    spec = JobSpec(
        name="job",
        roles={"a": writer, "b": RoleSpec(entry="x:y", reads=("made",))},
        channels={"made": ChannelSpec(capacity=7, lease=2.5), "own": ChannelSpec(holder="b")},
    )
    held = with_holders(spec)
    assert {name: one.holder for name, one in held.channels.items()} == {
        "made": "channels",
        "own": "b",
    }
    assert not held.roles["channels"].driver
    assert with_holders(held) == held
    rules = rules_of(held, "made")
    assert (rules.records, rules.lease_ms, rules.producers) == (7, 2500, 3)
