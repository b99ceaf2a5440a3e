"""A name shows the old content or the new one, never a part."""

import os
from pathlib import Path

import pytest

from folkmoot.host.files import StagedFile, read_text, write_atomically
from folkmoot.host.journal import Journal
from folkmoot.runs.config import load_run
from folkmoot.runs.serve import read_keys


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_nothing_shows_before_the_commit_and_nothing_is_left_without_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with StagedFile(path) as staged:
        staged.write(b"half")
        assert not path.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_must_be_new_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"first")
    with StagedFile(path) as staged:
        staged.write(b"second")
        with pytest.raises(FileExistsError):
            staged.commit(create=True)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_the_content_and_then_the_folder_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synced(fd: int) -> None:
        done.append("folder" if os.path.isdir(f"/proc/self/fd/{fd}") else "content")
        sync(fd)

    def renamed(self: Path, target: Path) -> Path:
        done.append("name")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    write_atomically(tmp_path / "file", b"content")
    assert done == ["content", "name", "folder"]


def test_a_full_disk_names_the_file(small_disk: Path) -> None:
    with pytest.raises(OSError, match=r"No space left on device: '.*/model\.bin'"):
        write_atomically(small_disk / "model.bin", bytes(64 << 20))
    journal = Journal(small_disk / "run.journal")
    journal.begin()
    with pytest.raises(OSError, match=r"No space left on device: '.*/run\.journal\.0"):
        journal.append(bytes(32 << 20))
    journal.close()


def test_a_file_that_is_not_utf8_is_named_with_the_byte(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_bytes('run_id = "caf\xe9"'.encode("latin-1"))
    for read in (read_text, load_run, read_keys):
        with pytest.raises(ValueError, match=r"run\.toml: byte 13 is not UTF-8 text"):
            read(file)
