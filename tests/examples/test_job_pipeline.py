"""The pipeline, small: workers are killed on the way, and every record is accounted for."""

import subprocess
import sys
from pathlib import Path

import folkmoot

SCRIPT = Path(folkmoot.__file__).parents[2] / "examples" / "job_pipeline.py"


def test_every_record_comes_through_once_although_workers_are_killed() -> None:
    command = [sys.executable, str(SCRIPT), "--files", "12"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every record came through exactly once" in done.stdout
    assert "killed on the way: sampler-0, tokenizer-0, trainer-0" in done.stdout
