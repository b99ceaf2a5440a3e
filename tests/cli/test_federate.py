"""`folkmoot federate` as a user types it: real processes."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from folkmoot.federated.model_file.reader import ModelFile
from support import commands
from support.certificates import LoopbackAuthority
from support.commands import printed, refused

PARTICIPANT = """
import os
import numpy as np
from folkmoot.federated import Participant

class Mine(Participant):
    def init_weights(self):
        return np.zeros(2, np.float32)

    def train_round(self, weights, epochs, epoch_base):
        return weights + 1 + int(os.environ.get("FOLKMOOT_PARTICIPANT", 0)), 1, {}
"""


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    return commands.start("federate", *words, cwd=folder, env={**os.environ, "PYTHONPATH": path})


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    process = start(folder, *words)
    said, error = process.communicate(timeout=120)
    return process.returncode, said, error


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(PARTICIPANT)
    (tmp_path / "federation.toml").write_text(
        'run_id = "tried"\n[rounds]\nrounds = 3\nmin_participants = 2\n[server]\nport = 0\n'
    )
    return tmp_path


def final(folder: Path) -> list[float]:
    with ModelFile(folder / "federation-state/bucket/3/global") as model:
        return list(model.arrays()["weights"])


def test_up_runs_a_federation_of_processes_to_its_end(folder: Path) -> None:
    code, said, error = run(folder, "up", "federation.toml", "-p", "mine:Mine", "-n", "2")
    assert code == 0, error
    assert "finished; the model is" in said
    assert "round 2: a model of 2 updates" in said
    assert final(folder) == [3.0, 3.0]


def two_join(folder: Path, server: "subprocess.Popen[str]", *join: str) -> None:
    """Two with keys of their own, until the server has ended: the model is two of their rounds."""
    people = [start(folder, *join, "--key", f"{n}.key") for n in "ab"]
    for person in people:
        said, error = person.communicate(timeout=120)
        assert (person.returncode, said) == (0, "the federation has finished\n"), error
    _, error = server.communicate(timeout=60)
    assert server.returncode == 0, error
    assert final(folder) == [2.0, 2.0]


def test_serve_and_join_with_weights_that_the_coordinator_carries(folder: Path) -> None:
    server = start(folder, "serve", "federation.toml")
    said = server.stdout.readline()
    assert "it carries weights at port" in said
    join = ("join", re.search(r"at (\S+);", said).group(1), "-p", "mine:Mine", "--run-id", "tried")
    two_join(folder, server, *join)


def test_up_ends_with_a_sentence_when_its_participants_die(folder: Path) -> None:
    broken = PARTICIPANT.replace(
        "return weights + 1", "raise SystemExit(7)\n        return weights"
    )
    (folder / "mine.py").write_text(broken)
    code, said, error = run(folder, "up", "federation.toml", "-p", "mine:Mine", "-n", "2")
    assert code == 1
    assert "participants have ended (exit codes" in error
    assert "a round needs 2: the federation stays in round 1" in error
    assert "finished" not in said


def test_status_and_up_speak_mutual_tls(folder: Path) -> None:
    authority = LoopbackAuthority(folder, "authority")
    server, client = authority.sign("server"), authority.sign("client")
    with (folder / "federation.toml").open("a") as file:
        file.write(
            f'[security]\ntls_certificate = "{server.cert}"\ntls_key = "{server.key}"\n'
            f'tls_client_authority = "{authority.file}"\n'
        )
    shown = [f"--tls-ca={authority.file}", f"--tls-cert={client.cert}", f"--tls-key={client.key}"]
    serving = start(folder, "serve", "federation.toml")
    address = re.search(r"at (\S+);", serving.stdout.readline()).group(1)
    code, said, error = run(folder, "status", address, *shown)
    assert (code, "tried: STANDBY" in said) == (0, True), error
    code, _, error = run(folder, "status", address, shown[0])
    assert (code, "no coordinator answers" in error) == (1, True)
    serving.send_signal(signal.SIGINT)
    serving.communicate(timeout=60)
    up = ("up", "federation.toml", "-p", "mine:Mine", "-n", "2")
    code, _, error = run(folder, *up)
    assert (code, "--tls-cert" in error) == (1, True)
    code, said, error = run(folder, *up, *shown)
    assert (code, "finished" in said) == (0, True), error


def test_serve_and_join_and_status(folder: Path) -> None:
    with (folder / "federation.toml").open("a") as file:
        file.write('\n[bucket]\nurl = "federation-state/bucket"\n')
    server = start(folder, "serve", "federation.toml")
    address = re.search(r"at (\S+);", server.stdout.readline()).group(1)
    code, said, _ = run(folder, "status", address)
    assert code == 0
    assert "tried: STANDBY, round 0 of 3" in said
    join = ("join", address, "-p", "mine:Mine", "--run-id", "tried")
    code, _, error = run(folder, *join, "--key", "a.key")
    assert (code, "--allow-bucket" in error) == (1, True)
    two_join(folder, server, *join, "--allow-bucket", "federation-state")


def test_an_interrupted_coordinator_resumes(folder: Path) -> None:
    server = start(folder, "serve", "federation.toml")
    assert "resumed" not in server.stdout.readline()
    server.send_signal(signal.SIGTERM)
    _, error = server.communicate(timeout=60)
    assert (server.returncode, error) == (0, "interrupted\n")
    server = start(folder, "serve", "federation.toml")
    assert "resumed in round 0" in server.stdout.readline()
    server.send_signal(signal.SIGINT)
    server.communicate(timeout=60)


def test_mistakes_are_told_in_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "bad.toml").write_text('run_id = "x"\n[rounds]\nround = 3\n')
    cases = {
        ("serve", "bad.toml"): "did you mean 'rounds'",
        ("serve", "none.toml"): "No such file",
        ("up", "federation.toml", "-p", "mine"): "expected module:Class",
        ("up", "federation.toml", "-p", "mine:Other"): "has no class 'Other'",
        ("up", "federation.toml", "-p", "nowhere:Mine"): "cannot import 'nowhere'",
        ("status", "127.0.0.1:1"): "no coordinator answers",
    }
    for words, told in cases.items():
        assert told in refused("federate", *words)


def test_a_key_is_made_once(folder: Path) -> None:
    first, second = (printed("federate", "key", folder / "me.key") for _ in range(2))
    assert first == second
    assert re.fullmatch(r"[0-9a-f]{64}\n", first)
    assert (folder / "me.key").stat().st_mode & 0o777 == 0o600
