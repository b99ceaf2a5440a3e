"""The pipeline, small: workers are killed on the way, and every record is accounted for."""

import subprocess
import sys
from pathlib import Path

import pytest

import folkmoot

SCRIPT = Path(folkmoot.__file__).parents[2] / "examples" / "job_pipeline.py"


@pytest.mark.parametrize("substrate", ["local", pytest.param("ray", marks=pytest.mark.faults)])
def test_every_record_comes_through_once_although_workers_are_killed(
    substrate: str, request: pytest.FixtureRequest
) -> None:
    command = [sys.executable, str(SCRIPT), "--files", "12"]
    if substrate == "ray":
        command.append(f"--ray-address={request.getfixturevalue('ray_cluster')}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every record came through exactly once" in done.stdout
    assert "killed on the way: sampler-0, tokenizer-0, trainer-0" in done.stdout
