"""A run that a store keeps, by the commands that people type."""

from pathlib import Path

import pytest

from faults.live import PATIENCE, write_config
from support.commands import printed, ran, refused


@pytest.fixture(params=["tcp_store_url", "etcd_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def test_up_trains_a_run_in_a_store_of_its_own(tmp_path: Path) -> None:
    write_config(tmp_path, clients=2, steps=6, rounds=6)
    words = ("run.toml", "--authority=store", "--clients=2", "--folder=out")
    done = ran("up", *words, cwd=tmp_path, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Finished at step 6 of 6" in done.stdout
    assert (tmp_path / "out" / "store" / "output.txt").exists()
    assert "store:tcp://" in (tmp_path / "out" / "client-1" / "output.txt").read_text()


def test_its_owner_creates_looks_at_halts_and_resumes_it(
    tmp_path: Path, url: str, store_prefix: str
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f'run_id = "{store_prefix}"\n[config]\ntotal_steps = 5\n')
    created = printed("create", file, f"--store={url}", f"--folder={tmp_path}")
    run = [f"store:{url}", f"--run-id={store_prefix}"]
    assert f"folkmoot join store:{url} --run-id {store_prefix}" in created
    key = f"--key={tmp_path / 'owner.key'}"
    for words, phase in (
        (["status", *run], "WaitingForMembers"),
        (["pause", *run, key], "Paused"),
        (["status", *run], "Paused"),
        (["resume", *run, key], "WaitingForMembers"),
    ):
        assert printed(*words).startswith(f"{store_prefix}: {phase}"), words
    another = tmp_path / "another.key"
    printed("key", another)
    why = refused("pause", *run, f"--key={another}")
    assert "only an owner of the run may say that" in why


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["up", "run.toml", "--authority=stor"], "--authority stor: it is server, store or solana"),
        (["up", "run.toml", "--store=tcp://x:1"], "add --authority store"),
        (["join", "store:tcp://x:1"], "name the one to join with --run-id"),
        (["status", "store:x", "--run-id=r"], "'x' names no store; a store begins with one of"),
        (["create", "run.toml", "--store=tcp://x"], "expected tcp://host:port"),
    ],
)
def test_what_cannot_be_meant_is_said(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text('run_id = "r"\n[config]\ntotal_steps = 5\n')
    assert message in refused(*words)
