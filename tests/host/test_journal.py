"""The journal: what is in it happened, and a torn end is forgotten."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from folkmoot.host.journal import CHUNK, MAGIC, Journal, JournalError


def written(path: Path, *records: bytes) -> bytes:
    journal = Journal(path)
    for record in records:
        journal.append(record)
    journal.close()
    return path.read_bytes()


def read(path: Path) -> list[bytes]:
    journal = Journal(path)
    try:
        return journal.records
    finally:
        journal.close()


def test_records_come_back_in_order(tmp_path: Path) -> None:
    written(tmp_path / "j", b"one", b"two", b"\0" * 9)
    assert read(tmp_path / "j") == [b"one", b"two", b"\0" * 9]


def test_a_last_record_cut_at_any_byte_is_forgotten_and_can_be_followed(tmp_path: Path) -> None:
    path = tmp_path / "j"
    whole = written(path, b"first", b"second record")
    start = len(MAGIC) + 8 + len(b"first")
    end = start + 8 + len(b"second record")
    for cut in range(start, end):
        path.write_bytes(whole[:cut] + bytes(len(whole) - cut))
        assert read(path) == [b"first"]
        written(path, b"third")
        assert read(path) == [b"first", b"third"]


def test_damage_before_the_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "j"
    whole = bytearray(written(path, b"first", b"second"))
    whole[len(MAGIC) + 9] ^= 1
    path.write_bytes(whole)
    with pytest.raises(JournalError, match="damaged at byte"):
        Journal(path)
    path.write_bytes(b"something else")
    with pytest.raises(JournalError, match="not a"):
        Journal(path)


def test_it_grows_past_what_was_filled_beforehand(tmp_path: Path) -> None:
    records = [bytes([i]) * (CHUNK // 3) for i in range(1, 8)]
    written(tmp_path / "j", *records)
    assert read(tmp_path / "j") == records


def test_compaction_leaves_one_record_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = Journal(path)
    for number in range(1000):
        journal.append(b"x" * 1000)
        if number % 100 == 99:
            journal.compact(b"all of it")
    journal.append(b"more")
    journal.close()
    assert read(path) == [b"all of it", b"more"]
    assert path.stat().st_size <= 2 * CHUNK


def test_one_process_at_a_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    with pytest.raises(JournalError, match="in use"):
        Journal(tmp_path / "j")
    journal.close()
    Journal(tmp_path / "j").close()


def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every write, sync and rename from now on: what was done, to which file."""
    calls: list[str] = []

    def note(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, *rest: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else first
            calls.append(f"{name} {Path(path).name}")
            return real(first, *rest)

        return call

    for name in ("write", "pwrite", "fsync", "fdatasync", "replace"):
        monkeypatch.setattr(os, name, note(name, getattr(os, name)))
    return calls


def test_nothing_returns_before_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    calls = noted(monkeypatch)

    def done() -> list[str]:
        last = calls.copy()
        calls.clear()
        return last

    new_file = ["write j.part", "fsync j.part", "replace j.part", "fsync kept"]
    journal = Journal(folder / "j")
    assert done() == new_file
    for _ in range(3):
        journal.append(b"a record")
        assert done() == ["pwrite j", "fdatasync j"]
    journal.append(bytes(2 * CHUNK))
    assert done() == ["pwrite j", "fsync j", "pwrite j", "fdatasync j"], "it grew first"
    journal.compact(b"all of it")
    assert done() == new_file
    journal.append(b"more")
    assert done() == ["pwrite j", "fdatasync j"]
    torn = journal.size - 1
    journal.close()
    with (folder / "j").open("r+b") as file:
        file.seek(torn)
        file.write(b"\xff")
    Journal(folder / "j").close()
    assert done() == ["pwrite j", "fdatasync j"], "a torn record is wiped"
