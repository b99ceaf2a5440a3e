"""PPO as a job: it learns although its rollout workers are killed, in a few steps and in full."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import folkmoot

SCRIPT = Path(folkmoot.__file__).parents[2] / "examples" / "job_ppo.py"


def learned(plot: Path, *arguments: str) -> tuple[float, float, str]:
    """The mean return after the first step and after the last, and what was printed."""
    command = [sys.executable, str(SCRIPT), "--plot", str(plot), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")
    found = re.search(r"mean return ([\d.]+) -> ([\d.]+)", done.stdout)
    assert found
    return float(found[1]), float(found[2]), done.stdout


def test_ppo_learns_while_its_rollout_workers_are_killed(tmp_path: Path) -> None:
    before, after, said = learned(tmp_path / "plot.png", "--steps", "9", "--dies-at", "3")
    assert after > 2 * before
    assert "killed on the way: rollout-0, rollout-1" in said
    assert "1 of the rollout workers is missing" in said


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_ppo_reaches_a_mean_return_of_400(tmp_path: Path) -> None:
    _, after, said = learned(tmp_path / "plot.png")
    assert after >= 400
    assert "killed on the way: rollout-0, rollout-1" in said
