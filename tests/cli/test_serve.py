"""`folkmoot serve` as a process: how to join what it serves, and what it cannot use."""

from pathlib import Path

from folkmoot.authority.server.keeper import Keeper
from folkmoot.core.coordinator import messages as m
from folkmoot.runs.config import load_run
from support.commands import RUN_FILE, printed, ran, served


def test_a_damaged_journal_is_not_a_new_run(tmp_path: Path) -> None:
    file, state = tmp_path / "run.toml", tmp_path / "server"
    file.write_text(RUN_FILE)
    keeper = Keeper(load_run(file), state / "run.journal")
    for _ in range(50):
        keeper.take(m.Pause())
        keeper.take(m.Resume())
    keeper.close()
    journal = next(state.glob("run.journal.0*"))
    data = journal.read_bytes()
    middle = data.index(b"Pause", len(data.rstrip(b"\0")) // 2)
    at = data.rindex(b"\0\0\0", 0, middle) - 1  # the length of its record
    damaged = data[:at] + b"\xff" * 4 + data[at + 4 :]
    journal.write_bytes(damaged)
    for _ in range(2):
        ended = ran("serve", file, "--state", state, "--listen", "127.0.0.1:0")
        assert ended.returncode != 0
        assert "Traceback" not in ended.stderr
        said = " ".join(ended.stderr.replace("│", " ").split())
        assert f"it is damaged at byte {at}" in said, ended.stderr
        assert "Restore it from a copy" in said
        assert journal.read_bytes() == damaged


def test_the_line_to_join_by_names_a_host_a_port_and_the_run(tmp_path: Path) -> None:
    """Who listens everywhere is found there by whoever pastes it, here as on another machine."""
    file = tmp_path / "run.toml"
    file.write_text(RUN_FILE)
    with served(file, "0.0.0.0:0") as (address, process):
        assert process.stdout
        line = next(line for line in process.stdout if "join:" in line)
        command, place, *rest = line.partition("join:  folkmoot ")[2].split()
        assert command == "join"
        host, _, port = place.rpartition(":")
        assert host not in ("", "0.0.0.0")
        assert port == address.rpartition(":")[2]
        assert "moot: WaitingForMembers" in printed("status", place, *rest)
