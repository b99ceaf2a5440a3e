"""Elastic roles: the user's code finds its world, and another after a death."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from folkmoot.core.job import JobSpec, Resource, RoleSpec, Timeouts
from folkmoot.core.job import messages as m
from folkmoot.unified.master.owner import OwnersLine
from folkmoot.unified.preload import preload
from support.examples import EXAMPLES
from support.ray_nodes import kill_node, node
from unified.master.job_run import SMALL, JobRun

ROLES = "unified.backends.elastic_roles"
SCRIPT = Path(__file__).with_name("elastic_roles.py")


def elastic(entry: str, **more: Any) -> RoleSpec:
    return RoleSpec(entry=entry, backend="elastic", **{"total": 2, "resource": SMALL, **more})


@contextmanager
def job(folder: Path, ray: str, **roles: RoleSpec) -> Iterator[JobRun]:
    """Its workers leave their traces in `folder`."""
    name = f"job{secrets.token_hex(4)}"
    # A death is seen before this is over, whoever has to wait for a processor.
    spec = JobSpec(name=name, roles=roles, env={"WHERE": str(folder)}, blame_grace=10.0)
    run = JobRun(folder, spec, ray, preload=preload(spec))
    try:
        run.start()
        yield run
    finally:
        run.clean_up()


def test_a_script_finds_its_world(folder: Path, ray: str) -> None:
    with job(folder, ray, train=elastic(str(SCRIPT))) as run:
        assert run.outcome().exit_code == 0
        assert [(folder / f"world-{k}").read_text() for k in (0, 1)] == [
            "0 2 0 2 0\n",
            "1 2 1 2 0\n",
        ]
        assert [f.world for f in run.all_of(m.Formed)] == [("train-0", "train-1")]
        run.nothing_left()


def test_a_worker_that_is_killed_comes_back_into_a_new_world(folder: Path, everywhere: str) -> None:
    with job(folder, everywhere, train=elastic(f"{ROLES}:train_until_killed")) as run:
        assert run.outcome().exit_code == 0
        assert (folder / "world-0").read_text() == "0 2 0 2 0\n0 2 0 2 1\n"
        blamed = [(b.actor, b.kind) for b in run.all_of(m.Blamed)]
        assert blamed == [("train-1", "died")]  # P3, P4: and not rank 0, whose all-reduce broke
        run.nothing_left()


def test_one_that_hangs_when_it_is_checked_is_found_and_replaced(folder: Path, ray: str) -> None:
    role = elastic(f"{ROLES}:HangsOnce", timeouts=Timeouts(check=16.0))
    with job(folder, ray, train=role) as run:
        assert run.outcome().exit_code == 0
        (blamed,) = run.all_of(m.Blamed)
        assert (blamed.actor, blamed.kind) == ("train-1", "unfit")


def test_the_workers_of_an_elastic_role_can_be_called(folder: Path, ray: str) -> None:
    learner = elastic(f"{ROLES}:Learner", driver=False)
    teacher = RoleSpec(entry=f"{ROLES}:Teacher", resource=SMALL)
    with job(folder, ray, learner=learner, teacher=teacher) as run:
        assert run.outcome().exit_code == 0
        assert (folder / "taught").read_text() == "[1.5, 1.5]\n"


def test_a_role_grows_when_there_are_more_workers_and_shrinks_when_fewer(
    folder: Path, ray: str
) -> None:
    role = elastic(f"{ROLES}:wait_in_world", total=1, min=1, max=2, join_wait=0.0)
    with job(folder, ray, train=role) as run:
        run.until(lambda: sizes(folder) == ["1"])
        line = OwnersLine(run.home)
        assert line.scale("train", 2) == ""
        run.until(lambda: sizes(folder) == ["1", "2", "2"])
        assert line.scale("train", 1) == ""
        run.until(lambda: sizes(folder) == ["1", "1", "2", "2"])
        assert [len(formed.world) for formed in run.all_of(m.Formed)] == [1, 2, 1]
        line.close()
        assert run.outcome().exit_code == 0


@pytest.mark.faults
def test_a_world_over_several_nodes_goes_on_without_one_that_is_killed(
    folder: Path, ray_cluster: str
) -> None:
    """And grows again when there is another."""
    side = Resource(cpu=0.1, custom={"side": 1.0})
    role = elastic(f"{ROLES}:wait_in_world", min=1, max=2, join_wait=1.0, resource=side)
    with (
        node(ray_cluster, side=1),
        node(ray_cluster, side=1) as mortal,
        job(folder, ray_cluster, train=role) as run,
    ):
        run.wait(m.Formed, lambda f: len(f.world) == 2)
        run.until(lambda: sizes(folder) == ["2", "2"])
        kill_node(mortal)
        run.wait(m.Formed, lambda f: len(f.world) == 1)
        run.until(lambda: sizes(folder) == ["1", "2", "2"])
        with node(ray_cluster, side=1):
            run.wait(m.Formed, lambda f: len(f.world) == 2, nth=2)
            run.until(lambda: sizes(folder) == ["1", "2", "2", "2", "2"])
            assert run.outcome().exit_code == 0
        run.nothing_left()


@pytest.mark.faults
def test_ranks_of_a_global_iteration_come_back_alone(folder: Path, ray: str) -> None:
    """The one that died takes model and step from the other, whose process never ended."""
    script = EXAMPLES / "elastic_training.py"
    count = 400 if ray else 60  # on Ray the others go far until it is back
    args = ("--steps", str(count), "--pause", "0.05", "--losses", str(folder))
    with job(folder, ray, train=elastic(str(script), args=args, failure_domain="worker")) as run:
        run.until(lambda: len(steps(folder, 1)) > 10)
        run.kill("train-1")
        run.until(lambda: len(steps(folder, 0)) == count)
        assert run.outcome().exit_code == 0
        assert steps(folder, 0) == list(range(count))
        assert steps(folder, 1)[-1] == count - 1
        assert len(run.all_of(m.Formed)) == 1


def steps(folder: Path, rank: int) -> list[int]:
    path = folder / f"losses-{rank}.txt"
    return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


def sizes(folder: Path) -> list[str]:
    """Of all worlds so far, as each of their ranks has told it."""
    return sorted(line for path in folder.glob("sizes-*") for line in path.read_text().split())
