"""A run and a federation whose coordinator and members are roles of a job, on both substrates."""

import pytest

from support.examples import run_example

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
    arguments = ["--federation"] if what == "federation" else []
    if substrate == "ray":
        arguments.append(f"--ray-address={request.getfixturevalue('ray_cluster')}")
    said = run_example("job_members", *arguments)
    if what == "run":
        assert "killed on the way: coordinator-0, member-0" in said
        assert "the run left a checkpoint" in said
    else:
        assert "killed on the way: member-0" in said
        assert "of unseen digits" in said
