"""PPO as a job: it learns although its rollout workers are killed, in a few steps and in full."""

import re
from pathlib import Path

import pytest

from support.examples import run_example


def learned(plot: Path, *arguments: str) -> tuple[float, float, str]:
    """The mean return after the first step and after the last, and what was printed."""
    said = run_example("job_ppo", "--plot", plot, *arguments)
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "killed on the way: rollout-0, rollout-1" in said
    found = re.search(r"mean return ([\d.]+) -> ([\d.]+)", said)
    assert found
    return float(found[1]), float(found[2]), said


def test_ppo_learns_while_its_rollout_workers_are_killed(tmp_path: Path) -> None:
    before, after, said = learned(tmp_path / "plot.png", "--steps", "9", "--dies-at", "3")
    assert after > 2 * before
    assert "1 of the rollout workers is missing" in said


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_ppo_reaches_a_mean_return_of_400(tmp_path: Path) -> None:
    assert learned(tmp_path / "plot.png")[1] >= 400
