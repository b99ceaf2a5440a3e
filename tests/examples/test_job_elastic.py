"""Elastic training, small: a worker is killed, comes back, and the model is learnt all the same."""

import subprocess
import sys
from pathlib import Path

import folkmoot

SCRIPT = Path(folkmoot.__file__).parents[2] / "examples" / "job_elastic.py"


def test_a_killed_worker_comes_back_and_the_steps_are_all_taken() -> None:
    command = [sys.executable, str(SCRIPT), "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    assert said[:3] == [
        "world 1: elastic-0, elastic-1",
        "elastic-1 was ended by SIGKILL",
        "world 2: elastic-0, elastic-1",
    ]
    assert said[-1].startswith("after 120 steps the loss is 0.")
