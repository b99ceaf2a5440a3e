"""The same job on a Ray cluster: nobody shares the fate of the master, and nothing is left."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from folkmoot.core.job import JobSpec, Resource, RoleSpec, Timeouts
from folkmoot.core.job import messages as m
from folkmoot.unified.master import events
from unified.master.job_run import ROLES, JobRun, on_folder, role
from unified.substrate.processes import wait_gone

SMALL = Resource(cpu=0.1)


@pytest.fixture
def ray(ray_cluster: str) -> Iterator[str]:
    """The cluster's address; the test's own connection ends with it."""
    import ray

    yield ray_cluster
    ray.shutdown()


def begin(folder: Path, address: str, roles: dict[str, RoleSpec], **more: object) -> JobRun:
    name = f"job{secrets.token_hex(4)}"
    spec = JobSpec(name=name, roles=on_folder(roles, folder), **more)  # type: ignore[arg-type]
    run = JobRun(folder, spec, substrate="ray", ray_address=address)
    run.start()
    return run


def left_on_ray(address: str, job: str) -> list[str]:
    import ray
    from ray.util.placement_group import placement_group_table

    ray.init(address=address, namespace="folkmoot", log_to_driver=False, ignore_reinit_error=True)
    actors = [name for name in ray.util.list_named_actors() if name.startswith(f"{job}/")]
    groups = [
        told["name"]
        for told in placement_group_table().values()
        if f"|{job}|" in told["name"] and told["state"] != "REMOVED"
    ]
    return [*actors, *groups]


def test_deaths_of_workers_and_of_the_master_are_survived(folder: Path, ray: str) -> None:
    """Both in one job, since a job on Ray takes seconds to start: P1, P2, P17, and what is left."""
    quick = Timeouts(silent=4.0)
    roles = {"a": role(total=2, resource=SMALL, timeouts=quick, sub_master=f"{ROLES}:Caretaker")}
    run = begin(folder, ray, roles)
    try:
        run.running()
        run.takes_steps("a-0")
        run.kill("a-0")
        run.takes_steps("a-0", 2)
        run.kill_master()
        run.takes_steps("a-1", more=10)
        run.start()
        run.wait(events.MasterBegan, lambda e: e.resumed)
        os.kill(run.pid("a-0", 2), signal.SIGSTOP)
        run.takes_steps("a-0", 3)
        wait_gone(run.pid("a-0", 2))
        assert run.outcome().exit_code == 0
        run.unbroken("a-1")
        blamed = [b.actor for b in run.all_of(m.Blamed)]
        assert blamed == ["a-0", "a-0"]
        run.nothing_left()
        assert not left_on_ray(ray, run.home.spec().name)
    finally:
        run.clean_up()


@contextmanager
def node(address: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Another node of the cluster, with a resource that the first has not."""
    started = start_node(address)
    try:
        yield started
    finally:
        kill_node(started)


def start_node(address: str, tries: int = 3) -> "subprocess.Popen[bytes]":
    """Ray gives a node thirty seconds to start, which a busy machine can miss."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={address}"]
    command += ["--num-cpus=1", '--resources={"side": 2}', "--block"]
    before = nodes(address)
    started = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    while nodes(address) <= before:
        if started.poll() is not None:
            assert tries > 1, "a second node of Ray did not start"
            return start_node(address, tries - 1)
        time.sleep(0.1)
    return started


def nodes(address: str) -> int:
    import ray

    ray.init(address=address, namespace="folkmoot", log_to_driver=False, ignore_reinit_error=True)
    return sum(node["Alive"] for node in ray.nodes())


def kill_node(started: "subprocess.Popen[bytes]") -> None:
    """The raylet and all that it started, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()


@pytest.mark.faults
def test_a_lost_node_costs_only_what_ran_on_it(folder: Path, ray: str) -> None:
    side = Resource(cpu=0.1, custom={"side": 1.0})
    roles = {"here": role(resource=SMALL), "there": role(resource=side)}
    with node(ray) as first:
        run = begin(folder, ray, roles)
        try:
            run.takes_steps("there-0")
            run.takes_steps("here-0")
            kill_node(first)
            run.wait(events.NodeLost)
            run.takes_steps("here-0")
            with node(ray):
                run.takes_steps("there-0", 2)
                assert run.outcome().exit_code == 0
            run.unbroken("here-0")
            assert not left_on_ray(ray, run.home.spec().name)
        finally:
            run.clean_up()
