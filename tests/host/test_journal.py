"""The journal: what is in it happened, and a torn end is forgotten."""

from pathlib import Path

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
