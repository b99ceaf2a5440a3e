"""A run and a federation whose coordinator and members are roles of a job, on both substrates."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import folkmoot

EXAMPLES = Path(folkmoot.__file__).parents[2] / "examples"
LONG = pytest.mark.faults


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("what", "substrate"),
    [
        ("run", "local"),
        ("federation", "local"),
        ("federation", "ray"),
        pytest.param("run", "ray", marks=LONG),
    ],
)
def test_coordinator_and_members_are_roles(
    what: str, substrate: str, request: pytest.FixtureRequest
) -> None:
    command = [sys.executable, str(EXAMPLES / "job_members.py")]
    if what == "federation":
        command.append("--federation")
    if substrate == "ray":
        command.append(f"--ray-address={request.getfixturevalue('ray_cluster')}")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    if what == "run":
        assert "killed on the way: coordinator-0, member-0" in done.stdout
        assert "the run left a checkpoint" in done.stdout
    else:
        assert "killed on the way: member-0" in done.stdout
        assert "of unseen digits" in done.stdout
