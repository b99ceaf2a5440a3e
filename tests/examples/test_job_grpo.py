"""GRPO as a job: the reward rises although rollout workers are killed; in short and in full."""

import re
from pathlib import Path

import pytest

from folkmoot.exchange.bucket import Bucket
from folkmoot.learning.checkpoints.fetch import latest
from folkmoot.learning.checkpoints.load import load_model, load_tokenizer
from support.examples import run_example


def rewards(out: Path, *arguments: str) -> tuple[float, float]:
    """In the first steps, and in the last."""
    said = run_example("job_grpo", "--out", out, *arguments)
    assert "killed on the way: rollout-0, rollout-1" in said
    found = re.search(r"reward +([\d.]+) -> ([\d.]+)", said)
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
