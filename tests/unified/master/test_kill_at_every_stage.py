"""kill -9 of each component at each stage of a job: it ends with the right result all the same.

Workers stop at a gate in each stage until the test opens it, so that the kill hits that stage.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from folkmoot.core.job import Timeouts
from unified.master.job_run import ROLES, JobRun, job_run, role

STAGES = ("init", "check", "run", "stop")
COMPONENTS = ("worker", "sub_master", "master", "fork_server", "all")
SUBSTRATES = ("local", "ray")
# The others are for `make faults`.
QUICK = {
    ("local", "init", "master"),
    ("local", "check", "worker"),
    ("local", "check", "fork_server"),
    ("local", "stop", "all"),
    ("ray", "check", "all"),
}


def kill_worker(run: JobRun) -> None:
    run.kill("a-0")


def kill_sub_master(run: JobRun) -> None:
    with contextlib.suppress(ProcessLookupError):  # it may have stopped already
        run.kill("a-master")


def kill_master(run: JobRun) -> None:
    run.kill_master()
    run.start()


def kill_fork_server(run: JobRun) -> None:
    os.kill(run.fork_server(), signal.SIGKILL)


def kill_all(run: JobRun) -> None:
    """As a power cut would, but for the files; of Ray only what is ours."""
    pids = [] if run.ray else [run.fork_server()]
    pids += [run.pid(actor) for actor in ("a-0", "a-1", "a-master")]
    run.masters[-1].kill()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it had stopped already
            os.kill(pid, signal.SIGKILL)
    kill_master(run)


KILL: dict[str, Callable[[JobRun], None]] = {
    "worker": kill_worker,
    "sub_master": kill_sub_master,
    "master": kill_master,
    "fork_server": kill_fork_server,
    "all": kill_all,
}


CASES = [
    (substrate, stage, component)
    for substrate in SUBSTRATES
    for stage in STAGES
    for component in COMPONENTS
    if (substrate, component) != ("ray", "fork_server")
]


@pytest.mark.parametrize(
    ("substrate", "stage", "component"),
    [pytest.param(*case, marks=[] if case in QUICK else pytest.mark.faults) for case in CASES],
)
def test_whoever_is_killed_when_the_job_ends_well(
    folder: Path, substrate: str, stage: str, component: str, request: pytest.FixtureRequest
) -> None:
    workers = role(
        "Gated",
        total=2,
        sub_master=f"{ROLES}:GatedMaster",
        # A sub-master that is replaced checks again, so everybody may be asked twice.
        timeouts=Timeouts(stop=20.0),
    )
    ray = request.getfixturevalue("ray_cluster") if substrate == "ray" else ""
    with job_run(folder, {"a": workers}, ray) as run:
        for other in STAGES:
            if other != stage:
                (folder / f"gate.{other}").touch()
        run.start()
        if stage == "stop":
            run.takes_steps("a-1")
            run.masters[0].terminate()
        run.until(lambda: list(folder.glob(f"*.1.at.{stage}")))
        for actor in ("a-0", "a-1", "a-master"):
            run.pid(actor)
        KILL[component](run)
        (folder / f"gate.{stage}").touch()
        outcome = run.outcome()
        expected = 128 + signal.SIGTERM if stage == "stop" else 0
        assert outcome.exit_code == expected, outcome.reason
        for actor in ("a-0", "a-1"):
            assert run.steps(actor)
        run.nothing_left()
