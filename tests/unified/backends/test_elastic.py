"""Elastic roles on local processes: the user's code finds its world, and another after a death."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from folkmoot.core.job import JobSpec, RoleSpec, Timeouts
from folkmoot.core.job import messages as m
from folkmoot.unified.master.owner import OwnersLine
from folkmoot.unified.preload import preload
from unified.master.job_run import JobRun

ROLES = "unified.backends.elastic_roles"
SCRIPT = Path(__file__).with_name("elastic_roles.py")
TESTS = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", f"{TESTS.parent / 'src'}:{TESTS}")
    monkeypatch.setenv("WHERE", str(tmp_path))
    return tmp_path


def elastic(entry: str, **more: Any) -> RoleSpec:
    return RoleSpec(entry=entry, backend="elastic", **{"total": 2, **more})


@contextmanager
def job(folder: Path, **roles: RoleSpec) -> Iterator[JobRun]:
    spec = JobSpec(name="test", roles=roles)
    run = JobRun(folder, spec, preload=preload(spec))
    try:
        run.start()
        yield run
    finally:
        run.clean_up()


def test_a_script_finds_its_world(folder: Path) -> None:
    with job(folder, train=elastic(str(SCRIPT))) as run:
        assert run.outcome().exit_code == 0
        assert [(folder / f"world-{k}").read_text() for k in (0, 1)] == [
            "0 2 0 2 0\n",
            "1 2 1 2 0\n",
        ]
        assert [f.world for f in run.all_of(m.Formed)] == [("train-0", "train-1")]
        run.nothing_left()


def test_a_worker_that_is_killed_comes_back_into_a_new_world(folder: Path) -> None:
    with job(folder, train=elastic(f"{ROLES}:train_until_killed")) as run:
        assert run.outcome().exit_code == 0
        assert (folder / "world-0").read_text() == "0 2 0 2 0\n0 2 0 2 1\n"
        assert [(b.actor, b.how) for b in run.all_of(m.Blamed)] == [
            ("train-1", "was ended by SIGKILL")
        ]
        run.nothing_left()


def test_one_that_hangs_when_it_is_checked_is_found_and_replaced(folder: Path) -> None:
    role = elastic(f"{ROLES}:HangsOnce", timeouts=Timeouts(check=8.0))
    with job(folder, train=role) as run:
        assert run.outcome().exit_code == 0
        (blamed,) = run.all_of(m.Blamed)
        assert (blamed.actor, blamed.kind) == ("train-1", "unfit")


def test_the_workers_of_an_elastic_role_can_be_called(folder: Path) -> None:
    learner = elastic(f"{ROLES}:Learner", driver=False)
    with job(folder, learner=learner, teacher=RoleSpec(entry=f"{ROLES}:Teacher")) as run:
        assert run.outcome().exit_code == 0
        assert (folder / "taught").read_text() == "[1.5, 1.5]\n"


def test_a_role_grows_when_there_are_more_workers_and_shrinks_when_fewer(folder: Path) -> None:
    role = elastic(f"{ROLES}:wait_in_world", total=1, min=1, max=2, join_wait=0.0)
    with job(folder, train=role) as run:
        run.wait(m.Formed, lambda f: f.world == ("train-0",))
        run.running()
        line = OwnersLine(run.home)
        assert line.scale("train", 2) == ""
        run.wait(m.Formed, lambda f: f.world == ("train-0", "train-1"))
        run.until(lambda: (folder / "sizes-1").exists())
        assert line.scale("train", 1) == ""
        run.until(lambda: (folder / "sizes-0").read_text() == "1\n2\n1\n")
        line.close()
        assert run.outcome().exit_code == 0


@pytest.mark.faults
def test_ranks_of_a_global_iteration_come_back_alone(folder: Path) -> None:
    """The one that died takes model and step from the other, whose process never ended."""
    script = TESTS.parent / "examples" / "elastic_training.py"
    args = ("--steps", "60", "--pause", "0.05", "--losses", str(folder))
    with job(folder, train=elastic(str(script), args=args, failure_domain="worker")) as run:
        run.until(lambda: len(steps(folder, 1)) > 10)
        run.kill("train-1")
        assert run.outcome().exit_code == 0
        assert steps(folder, 0) == list(range(60))
        assert steps(folder, 1)[-1] == 59
        assert len(run.all_of(m.Formed)) == 1


def steps(folder: Path, rank: int) -> list[int]:
    path = folder / f"losses-{rank}.txt"
    return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []
