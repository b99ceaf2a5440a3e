"""Logs: what is written can be read back as it was; what cannot be written stops nobody."""

import logging
import math
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.machine import StateChanged
from folkmoot.host.event_log import (
    EventLog,
    EventsMissed,
    LoggedRecord,
    LogReader,
    Record,
    Unknown,
    records_in,
)


class Hurt(Record, frozen=True, tag=True):
    id: bytes
    loss: float
    counts: tuple[int, ...] = ()


class Healed(Record, frozen=True, tag=True):
    why: str = "time"


def clock() -> int:
    return 1_700_000_000_123


def reader(path: Path) -> LogReader:
    return LogReader(path, [Hurt, Healed, StateChanged])


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "events.jsonl"
    log = EventLog(path, clock)
    written = [Hurt(b"\x00\xff", 0.5, (1, 2)), StateChanged("A", "B"), Healed()]
    for record in written:
        log.write(record)
    assert list(reader(path).new()) == [LoggedRecord(clock(), record) for record in written]


def test_a_line_can_be_read_without_us(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    EventLog(path, clock).write(Hurt(b"\x00\xff", 0.5))
    expected = {"time": clock(), "type": "Hurt", "id": "00ff", "loss": 0.5, "counts": []}
    assert msgspec.json.decode(path.read_bytes()) == expected


def test_a_loss_that_is_no_number_is_still_a_loss(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    EventLog(path).write(Hurt(b"", math.nan))
    (entry,) = reader(path).new()
    assert isinstance(entry.record, Hurt)
    assert math.isnan(entry.record.loss)


def test_a_reader_follows_a_log_and_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = reader(path)
    assert list(log.new()) == []
    path.write_text('{"time": 1, "type": "Healed"}\n{"time": 2, "ty')
    assert [entry.time for entry in log.new()] == [1]
    assert list(log.new()) == []
    with path.open("a") as file:
        file.write('pe": "Healed"}\n')
    assert [entry.time for entry in log.new()] == [2]
    assert log.damaged == 0


def test_a_log_that_was_begun_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"time": 1, "type": "Healed"}\n' * 2 + '{"time"')
    log = reader(path)
    assert len(list(log.new())) == 2
    path.write_text('{"time": 7, "type": "Healed"}\n')
    assert [entry.time for entry in log.new()] == [7]
    assert log.damaged == 0


def test_an_unknown_type_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"time": 1, "type": "Newer", "what": [1]}\n')
    assert list(reader(path).new()) == [LoggedRecord(1, Unknown("Newer", {"what": [1]}))]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[1]",
        "7",
        '{"type": "Healed"}',
        '{"time": 1}',
        '{"time": 1.5, "type": "Healed"}',
        '{"time": 1, "type": ["Healed"]}',
        '{"time": 1, "type": "Healed", "why": 3}',
        '{"time": 1, "type": "Hurt", "id": "no hex", "loss": 1}',
        '{"time": 1, "type": "Hurt"}',
        "[" * 5000,
    ],
)
def test_a_damaged_line_is_counted_and_the_next_one_read(tmp_path: Path, line: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line + '\n{"time": 9, "type": "Healed"}\n')
    log = reader(path)
    assert [entry.time for entry in log.new()] == [9]
    assert log.damaged == bool(line)


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_no_bytes_stop_a_reader(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("noise") / "events.jsonl"
    path.write_bytes(b"".join(parts) + b'\n{"time": 9, "type": "Healed"}\n')
    assert [*reader(path).new()][-1] == LoggedRecord(9, Healed())


def test_what_a_killed_process_left_of_a_line_costs_only_that_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"time": 1, "type": "Heal')
    EventLog(path, clock).write(Healed())
    log = reader(path)
    assert list(log.new()) == [LoggedRecord(clock(), Healed())]
    assert log.damaged == 1


def test_a_full_disk_is_warned_of_once_and_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.jsonl"
    path.symlink_to("/dev/full")
    log = EventLog(path)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            log.write(Healed())
    assert log.missed == 3
    (warning,) = caplog.messages
    assert "No space left on device" in warning
    assert str(path) in warning


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file of this process may grow beyond 200 bytes: writes fail as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


def test_a_log_goes_on_when_there_is_room_again_and_says_what_it_misses(
    tmp_path: Path, small_disk: None
) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path, clock)
    for number in range(10):
        log.write(Healed(f"in time {number}"))
    assert path.stat().st_size == 200, "the last line was cut off in the middle"
    kept = 10 - log.missed
    assert 0 < kept < 10
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    log.write(Healed("at last"))
    assert log.missed == 0
    read = reader(path)
    records = [entry.record for entry in read.new()]
    assert records[:kept] == [Healed(f"in time {number}") for number in range(kept)]
    assert records[kept:] == [EventsMissed(10 - kept), Healed("at last")]
    assert read.damaged == 1


def test_a_log_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    blocked = tmp_path / "folder"
    blocked.write_text("a file where the folder should be")
    log = EventLog(blocked / "events.jsonl", clock)
    log.write(Healed())
    assert log.missed == 1
    blocked.unlink()
    log.write(Healed("later"))
    read = [entry.record for entry in reader(blocked / "events.jsonl").new()]
    assert read == [EventsMissed(1), Healed("later")]


def test_a_closed_log_and_one_without_a_file_write_nothing(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.write(Healed())
    log.close()
    log.close()
    log.write(Healed())
    EventLog(None).write(Healed())
    assert len(path.read_bytes().splitlines()) == 1
    assert os.listdir(tmp_path) == ["events.jsonl"]


def test_the_records_of_a_module_are_found() -> None:
    here: ModuleType = sys.modules[__name__]
    assert {Hurt, Healed, StateChanged} <= set(records_in(here))
    assert Unknown not in records_in(here)
