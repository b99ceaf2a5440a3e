"""A trainer drives the other roles by calls, and goes on when some of them die."""

import secrets
from pathlib import Path

import pytest

from folkmoot.core.job import JobSpec
from folkmoot.unified.api import JobBuilder, RLJobBuilder
from folkmoot.unified.jobs import run_job

ROLES = "unified.backends.rl_roles"


def six_roles() -> JobSpec:
    job = RLJobBuilder(f"mock{secrets.token_hex(4)}")
    job.trainer(f"{ROLES}:Mock").resource(cpu=0.1)
    job.actor(f"{ROLES}:Actor").backend("worker").total(2).resource(cpu=0.1)
    job.rollout(f"{ROLES}:Rollout").total(2).resource(cpu=0.1)
    for role in (job.critic, job.reference, job.reward):
        role(f"{ROLES}:Judge").backend("worker").resource(cpu=0.1)
    return job.build()


@pytest.mark.parametrize(
    "substrate", ["inprocess", "local", pytest.param("ray", marks=pytest.mark.faults)]
)
def test_six_roles_play_three_episodes(
    folder: Path, substrate: str, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("ray_cluster") if substrate == "ray" else ""
    outcome = run_job(six_roles(), folder / "job", substrate, address)
    assert outcome.exit_code == 0, outcome.reason


def mortals(folder: Path, ranks: list[int]) -> JobSpec:
    job = JobBuilder("mortals")
    job.role("trainer").run(f"{ROLES}:Persistent").backend("trainer").config(folder=str(folder))
    job.role("mortal").run(f"{ROLES}:Mortal").total(2).not_driver().config(ranks=ranks)
    return job.build()


def test_a_trainer_goes_on_with_those_who_live_and_finds_the_dead_again(folder: Path) -> None:
    assert run_job(mortals(folder, [1]), folder / "job").exit_code == 0
    answers = (folder / "answers").read_text().splitlines()
    assert answers[0] == "0"
    assert answers[-1] == "0 1"


def test_a_step_in_which_nobody_lived_is_taken_once_more(folder: Path) -> None:
    assert run_job(mortals(folder, [0, 1]), folder / "job").exit_code == 0
    assert (folder / "answers").read_text().splitlines()[-1] == "0 1"
