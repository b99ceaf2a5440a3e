"""What a channel wrote down: whole after any death, and refused when it may not be whole."""

from pathlib import Path

import pytest

from folkmoot.unified.channel import spool as module
from folkmoot.unified.channel.errors import SpoolError
from folkmoot.unified.channel.spool import Spool

Pairs = list[tuple[bytes, bytes]]


def written(folder: Path) -> Pairs:
    spool = Spool(folder)
    spool.close()
    return [(entry.header, entry.body) for entry in spool.entries]


def write(folder: Path, begin: Pairs, more: Pairs) -> Path:
    """The file that is written to."""
    spool = Spool(folder)
    spool.begin((header, [body]) for header, body in begin)
    for header, body in more:
        spool.add(header, [body])
        spool.commit()
    spool.close()
    return folder / f"spool.{spool._active}"


BEGIN = [(b"state", b"")]
MORE = [(b"put", b"one"), (b"put", b"two"), (b"ack", b"")]


def test_what_was_written_is_read_in_order(tmp_path: Path) -> None:
    write(tmp_path, BEGIN, MORE)
    assert written(tmp_path) == BEGIN + MORE
    write(tmp_path, [(b"state", b"anew")], MORE[:1])
    assert written(tmp_path) == [(b"state", b"anew"), *MORE[:1]]


def test_a_death_in_a_write_costs_only_that_entry(tmp_path: Path) -> None:
    for _ in range(2):
        write(tmp_path, BEGIN, [(b"old", b"stale" * 40)] * 9)
    file = write(tmp_path, BEGIN, MORE[:2])  # over the first of them, whose end lies behind
    data = file.read_bytes()
    nonce = data[len(module.MAGIC) : len(module.MAGIC) + module.NONCE]
    _, end = module._entries(data, nonce)
    entry = module._HEAD.pack(3, 5, nonce) + b"put" + b"three" + nonce
    whole = data[:end] + entry + data[end + len(entry) :]
    for cut in range(len(entry)):
        torn = data[:end] + entry[:cut] + data[end + cut :]
        if torn != whole:  # what lies behind may happen to be the entry's last byte
            file.write_bytes(torn)
            assert written(tmp_path) == BEGIN + MORE[:2]
    file.write_bytes(whole)
    assert written(tmp_path) == [*BEGIN, *MORE[:2], (b"put", b"three")]


def test_a_file_that_was_never_begun_counts_for_nothing(tmp_path: Path) -> None:
    write(tmp_path, BEGIN, MORE)
    file = write(tmp_path, [(b"state", b"newer")], [])
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    assert written(tmp_path) == BEGIN + MORE


def test_damage_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path, BEGIN, MORE)
    data = bytearray(file.read_bytes())
    data[data.index(b"one") - 10] ^= 1
    file.write_bytes(data)
    with pytest.raises(SpoolError, match="is damaged at byte"):
        Spool(tmp_path)


def test_another_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "spool.0").write_bytes(b"something else" * 20)
    with pytest.raises(SpoolError, match="is not a channel's file"):
        Spool(tmp_path)


def test_after_a_restart_of_the_machine_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, BEGIN, MORE)
    monkeypatch.setattr(module, "boot_id", lambda: "1" * 36)
    with pytest.raises(SpoolError, match="before this machine was restarted"):
        Spool(tmp_path)
