"""An edited run.toml: `serve` says what differs, `update` and `extend` change what may change."""

import signal
from pathlib import Path

import pytest

from folkmoot.authority.server.keeper import Keeper
from folkmoot.core.coordinator import messages as m
from folkmoot.host.blocking import blocking
from folkmoot.runs.blocking import serve_run
from folkmoot.runs.config import load_run
from support.commands import RUN_FILE, printed, refused, served

CONFIG = f"""{RUN_FILE}[model.data]
type = "text"
paths = ["wrong.txt"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "run.toml"
    file.write_text(CONFIG)
    return file


def edit(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def test_serve_says_loudly_what_was_edited_and_how_to_change_it(file: Path) -> None:
    Keeper(load_run(file), file.parent / "server" / "run.journal").close()
    edit(file, "wrong.txt", "right.txt")
    edit(file, "total_steps = 4", "total_steps = 9")
    with served(file) as (address, process):
        key = file.parent / "server" / "owner.key"
        line = f"folkmoot update {file} {address} --key {key}"
        out = printed(*line.split()[1:])
        assert "changed config.total_steps: 4 -> 9" in out
        assert "step 0 of 9" in out
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    assert f"WARNING: {file} is not what is being run" in said
    assert "config.total_steps: 4 -> 9   (possible at any time)" in said
    assert '["wrong.txt"] -> ["right.txt"]   (possible when the run is paused)' in said
    assert f"  {line}\n" in said
    with served(file) as (address, process):
        assert "step 0 of 9" in printed("status", address, "--run-id", "moot")
        process.send_signal(signal.SIGTERM)
        assert "WARNING" not in process.communicate(timeout=60)[1]


def test_what_members_compute_with_waits_for_a_pause_and_nothing_changes_by_halves(
    file: Path,
) -> None:
    run = load_run(file)
    with serve_run(run, file.parent / "server") as server:
        key = ("--key", server.owner_key)
        where = (server.address, "--run-id", "moot", *key)
        for client in (b"a" * 32, b"b" * 32):
            assert not blocking(server.listening.keeper.submit)(m.Join(client, "moot"))
        assert server.state.phase == "Warmup"
        edit(file, "min_clients = 2", "min_clients = 1")
        edit(file, "wrong.txt", "right.txt")
        why = refused("update", file, server.address, *key)
        assert "nothing was changed: model.data.paths can change between two epochs only" in why
        assert server.state.run == run
        printed("pause", *where)
        printed("update", file, server.address, *key)
        assert server.state.run == load_run(file)
        assert "nothing to change" in printed("update", file, server.address, *key)


def test_a_run_is_extended_while_it_runs(file: Path) -> None:
    with serve_run(load_run(file), file.parent / "server") as server:
        where = (server.address, "--run-id", "moot", "--key", server.owner_key)
        printed("extend", *where, "--total-steps", "7")
        assert server.state.run.config.total_steps == 7
        for steps in ("7", "5"):
            why = refused("extend", *where, "--total-steps", steps)
            assert "the run trains until step 7 already" in why


def test_only_its_owner_changes_a_run_and_a_mistyped_key_is_not_made(file: Path) -> None:
    with serve_run(load_run(file), file.parent / "server") as server:
        where = (server.address, "--run-id", "moot", "--total-steps", "7")
        missing = file.parent / "ownr.key"
        assert f"there is no key {missing}" in refused("extend", *where, "--key", missing)
        assert not missing.exists()
        missing.write_text("0" * 63 + "1\n")
        why = refused("extend", *where, "--key", missing)
        assert "only an owner of the run may say that" in why
