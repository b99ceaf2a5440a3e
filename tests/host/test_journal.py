"""The journal: what is in it happened, a torn end is forgotten, and one process writes it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from folkmoot.host.journal import Fenced, Journal, JournalError
from folkmoot.host.journal_format import CHUNK, SECTOR, START, Frames


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


def frame_size(record: bytes) -> int:
    return len(record) + Frames.overhead


def in_disorder(path: Path) -> None:
    """The journal is refused, again and again, and not a byte of it changes."""
    files = {file: file.read_bytes() for file in path.parent.glob(f"{path.name}.*")}
    for _ in range(2):
        with pytest.raises(JournalError, match=r"cannot be used: its? .*Restore it from a copy"):
            Journal(path)
    assert all(file.read_bytes() == data for file, data in files.items())


def test_a_last_record_cut_at_any_byte_is_forgotten_and_can_be_followed(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", b"first", b"second record").read_bytes()
    start = START + frame_size(b"first")
    for cut in range(start, start + frame_size(b"second record")):
        path = tmp_path / str(cut)
        written(path).write_bytes(torn := whole[:cut] + bytes(len(whole) - cut))
        assert read(path) == [b"first"]
        written(path, b"third")
        assert read(path) == [b"first", b"third"]
        kept = [file.read_bytes() for file in tmp_path.glob(f"{cut}.*.cut")]
        assert kept == ([torn] if cut > start else []), "what was left out is still there"


def test_a_last_record_of_which_any_sectors_are_missing_is_forgotten(tmp_path: Path) -> None:
    record = bytes(range(1, 256)) * 8
    file = written(tmp_path / "j", b"first", record)
    whole = file.read_bytes()
    start = START + frame_size(b"first")
    last = (start + frame_size(record) - 1) // SECTOR
    for sector in range(last + 1):
        hole = slice(max(sector * SECTOR, start), (sector + 1) * SECTOR)
        data = bytearray(whole)
        data[hole] = bytes(len(data[hole]))
        file.write_bytes(data)
        assert read(tmp_path / "j") == [b"first"]


def test_a_flipped_bit_or_a_byte_made_zero_anywhere_loses_no_record(tmp_path: Path) -> None:
    records = [b"first", b"second", b"third"]
    path = tmp_path / "j"
    file = written(path, *records)
    whole = file.read_bytes()
    used = START + sum(map(frame_size, records))
    for at in range(used):
        for changed in {whole[at] ^ 1, 0} - {whole[at]}:
            if changed == 0 and at == used - 1:
                continue  # its last byte did not come: cut off
            file.write_bytes(whole[:at] + bytes([changed]) + whole[at + 1 :])
            with pytest.raises(JournalError):
                Journal(path)
    file.write_bytes(whole)
    assert read(path) == records


@pytest.mark.parametrize("length", [0, 1, 2**24, 2**32 - 1])
def test_a_damaged_length_is_an_error_and_nothing_is_wiped(tmp_path: Path, length: int) -> None:
    records = [bytes([number]) * 100 for number in range(1, 101)]
    file = written(tmp_path / "j", *records)
    whole = file.read_bytes()
    half = START + 50 * frame_size(records[0])
    file.write_bytes(whole[:half] + length.to_bytes(4, "little") + whole[half + 4 :])
    in_disorder(tmp_path / "j")


def test_a_lost_sector_or_page_amid_the_records_is_an_error(tmp_path: Path) -> None:
    records = [bytes([number]) * 300 for number in range(1, 101)]
    file = written(tmp_path / "j", *records)
    whole = file.read_bytes()
    for size in (SECTOR, 4096):
        for hole in range(0, len(records) * 300 - size, size):
            file.write_bytes(whole[:hole] + bytes(size) + whole[hole + size :])
            with pytest.raises(JournalError):
                Journal(tmp_path / "j")


def test_what_a_file_began_with_is_never_taken_for_a_cut_off_end(tmp_path: Path) -> None:
    """A file comes into being whole: zeros among its first records are not what a crash left."""
    written(tmp_path / "j", b"state", b"what followed")
    file = written(tmp_path / "j")
    whole = file.read_bytes()
    last = START + frame_size(b"state")
    for cut in (
        START,
        START + 1,
        last - 1,
        last,
        last + 1,
        last + frame_size(b"what followed") - 1,
    ):
        file.write_bytes(whole[:cut] + bytes(len(whole) - cut))
        in_disorder(tmp_path / "j")
    file.write_bytes(whole)
    assert read(tmp_path / "j") == [b"state", b"what followed"]


def test_a_file_that_was_cut_short_is_an_error(tmp_path: Path) -> None:
    records = [bytes([number]) * 1000 for number in range(1, 101)]
    file = written(tmp_path / "j", *records)
    whole = file.read_bytes()
    used = START + sum(map(frame_size, records))
    for size in (1, 18, START - 1, START, START + 5, START + frame_size(records[0]), used // 2):
        file.write_bytes(whole[:size])
        in_disorder(tmp_path / "j")


def test_a_record_cannot_look_like_damage_or_like_another(tmp_path: Path) -> None:
    """Whoever has bytes recorded may put a whole journal into them."""
    other = written(tmp_path / "other", b"x" * 30, b"y" * 30).read_bytes()[:4096]
    file = written(tmp_path / "j", b"first", other)
    whole = bytearray(file.read_bytes())
    start = START + frame_size(b"first")
    whole[start:SECTOR] = bytes(SECTOR - start)
    file.write_bytes(whole)
    assert read(tmp_path / "j") == [b"first"], "its first sector did not come"


def test_a_record_that_could_not_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "j")
    journal.begin(b"state")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(OSError, match="No space"):
            journal.append(b"long" * 1000)
    journal.append(b"short")
    journal.close()
    assert read(tmp_path / "j") == [b"state", b"short"]


def test_something_else_is_no_journal(tmp_path: Path) -> None:
    written(tmp_path / "j", b"first").write_bytes(b"something else")
    in_disorder(tmp_path / "j")


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
