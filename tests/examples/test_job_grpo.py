"""GRPO as a job: the reward rises although rollout workers are killed; in short and in full."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import folkmoot
from folkmoot.exchange.bucket import Bucket
from folkmoot.learning.checkpoints.fetch import latest
from folkmoot.learning.checkpoints.load import load_model, load_tokenizer

SCRIPT = Path(folkmoot.__file__).parents[2] / "examples" / "job_grpo.py"


def rewards(out: Path, *arguments: str) -> tuple[float, float]:
    """In the first steps, and in the last."""
    command = [sys.executable, str(SCRIPT), "--out", str(out), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed on the way: rollout-0, rollout-1" in done.stdout
    found = re.search(r"reward +([\d.]+) -> ([\d.]+)", done.stdout)
    assert found
    return float(found[1]), float(found[2])


@pytest.mark.timeout(600)
def test_a_rewarded_model_answers_better_and_leaves_a_checkpoint(tmp_path: Path) -> None:
    before, after = rewards(tmp_path, "--rounds", "300", "--steps", "20", "--dies-at", "3")
    assert after > before + 0.03
    assert (tmp_path / "reward.png").read_bytes().startswith(b"\x89PNG")
    folder = latest(Bucket(str(tmp_path / "checkpoints")))
    assert load_model(folder, "cpu").config.vocab_size == load_tokenizer(folder).vocab_size


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_the_reward_rises_clearly(tmp_path: Path) -> None:
    before, after = rewards(tmp_path)
    assert after > before + 0.2
