"""The journal: what is in it happened, a torn end is forgotten, and one process writes it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from folkmoot.host.journal import CHUNK, MAGIC, Fenced, Journal, JournalError


def written(path: Path, *records: bytes) -> Path:
    """The file of a journal that holds what it held, and these records."""
    journal = Journal(path)
    journal.begin(*journal.records)
    for record in records:
        journal.append(record)
    journal.close()
    return journal.file


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
    whole = written(tmp_path / "whole", b"first", b"second record").read_bytes()
    start = len(MAGIC) + 8 + len(b"first")
    end = start + 8 + len(b"second record")
    for cut in range(start, end):
        path = tmp_path / str(cut)
        written(path).write_bytes(whole[:cut] + bytes(len(whole) - cut))
        assert read(path) == [b"first"]
        written(path, b"third")
        assert read(path) == [b"first", b"third"]


def test_damage_before_the_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "j"
    file = written(path, b"first", b"second")
    whole = bytearray(file.read_bytes())
    whole[len(MAGIC) + 9] ^= 1
    file.write_bytes(whole)
    with pytest.raises(JournalError, match="damaged at byte"):
        Journal(path)
    file.write_bytes(b"something else")
    with pytest.raises(JournalError, match="not a"):
        Journal(path)


def test_it_grows_past_what_was_filled_beforehand(tmp_path: Path) -> None:
    records = [bytes([i]) * (CHUNK // 3) for i in range(1, 8)]
    written(tmp_path / "j", *records)
    assert read(tmp_path / "j") == records


def test_a_new_beginning_leaves_its_own_records_and_goes_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.begin()
    for number in range(1000):
        journal.append(b"x" * 1000)
        if number % 100 == 99:
            journal.begin(b"all of it")
    journal.append(b"more")
    journal.close()
    assert journal.file.stat().st_size <= 2 * CHUNK
    assert read(tmp_path / "j") == [b"all of it", b"more"]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    with pytest.raises(JournalError, match="in use"):
        Journal(tmp_path / "j")
    journal.close()
    Journal(tmp_path / "j").close()


def test_every_holder_has_a_larger_epoch(tmp_path: Path) -> None:
    epochs = []
    for _ in range(3):
        journal = Journal(tmp_path / "j")
        journal.begin(b"x")
        epochs.append(journal.epoch)
        journal.close()
    assert epochs == sorted(set(epochs))
    assert sorted(p.name for p in tmp_path.iterdir()) == [journal.file.name, "j.lock"]


def test_a_holder_that_was_replaced_can_add_nothing(tmp_path: Path) -> None:
    old = Journal(tmp_path / "j")
    old.begin(b"state")
    old.append(b"before")
    new = Journal(tmp_path / "j", take_over=True)
    assert new.records == [b"state", b"before"]
    with pytest.raises(Fenced, match="taken over"):
        old.append(b"as soon as the next epoch is claimed")
    new.begin(*new.records)
    new.append(b"after")
    for write in (old.append, old.begin):
        with pytest.raises(Fenced, match="taken over"):
            write(b"too late")
    third = Journal(tmp_path / "j", take_over=True)
    third.begin(*third.records)
    with pytest.raises(Fenced):
        old.append(b"still too late, when its successor is gone too")
    for journal in (old, new, third):
        journal.close()
    assert read(tmp_path / "j") == [b"state", b"before", b"after"]


def test_a_successor_that_died_before_it_began_loses_nothing(tmp_path: Path) -> None:
    written(tmp_path / "j", b"one")
    for _ in range(3):
        Journal(tmp_path / "j").close()
    assert read(tmp_path / "j") == [b"one"]


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
    journal = Journal(folder / "j")
    calls = noted(monkeypatch)

    def done() -> list[str]:
        last = calls.copy()
        calls.clear()
        return last

    file = journal.file.name
    begun = [f"write {file}.part", f"fsync {file}.part", f"replace {file}.part", "fsync kept"]
    journal.begin(b"state")
    assert done() == begun
    for _ in range(3):
        journal.append(b"a record")
        assert done() == [f"pwrite {file}", f"fdatasync {file}"]
    journal.append(bytes(2 * CHUNK))
    written = [f"pwrite {file}", f"fsync {file}", f"pwrite {file}", f"fdatasync {file}"]
    assert done() == written, "it grew first"
    journal.begin(b"all of it")
    assert done() == begun
    journal.append(b"more")
    assert done() == [f"pwrite {file}", f"fdatasync {file}"]
    journal.close()
