"""A job on a Ray cluster: nobody shares the fate of the master, or of a node, and nothing is left.

Each test kills several, since a job on Ray takes seconds to start; the tests of `test_job` and
`test_kill_at_every_stage` run on Ray one by one with `make faults`.
"""

import os
import signal
from pathlib import Path

import pytest

from folkmoot.core.job import Resource, Timeouts
from folkmoot.core.job import messages as m
from folkmoot.unified.master import events
from support.ray_nodes import kill_node, node
from unified.master.job_run import ROLES, job_run, role
from unified.substrate.processes import wait_gone


def test_deaths_of_workers_sub_masters_and_masters_are_survived(
    folder: Path, ray_cluster: str
) -> None:
    """P1, P2, P6, P17, and every scenario in which the public implementation hangs."""
    roles = {
        "a": role(total=2, failure_domain="role", sub_master=f"{ROLES}:Caretaker"),
        "b": role(total=2),
        # Where it matters how soon silence is found. On a machine that starves it may be found
        # before the test makes it silent: that is nobody else's fault, and nobody else is blamed.
        "c": role(timeouts=Timeouts(silent=10.0)),
    }
    with job_run(folder, roles, ray_cluster) as run:
        run.start()
        run.running()
        # One independent worker.
        run.takes_steps("b-0")
        run.kill("b-0")
        run.takes_steps("b-0", 2)
        # The same role, twice.
        for life in (1, 2):
            run.takes_steps("a-0", life)
            run.takes_steps("a-1", life)
            run.kill("a-0", life)
        run.takes_steps("a-1", 3)
        # A sub-master, then a worker of its role.
        run.kill("a-master")
        run.runs("a-master", nth=2)
        run.kill("a-1", 3)
        run.takes_steps("a-0", 4)
        # The master, and one that hangs.
        run.kill_master()
        run.takes_steps("b-1", more=10)
        run.start()
        run.wait(events.MasterBegan, lambda e: e.resumed)
        life = run.life_of("c-0")
        os.kill(run.pid("c-0", life), signal.SIGSTOP)
        run.takes_steps("c-0", life + 1)
        wait_gone(run.pid("c-0", life))
        assert run.outcome().exit_code == 0
        run.unbroken("b-1")
        blamed = [b.actor for b in run.all_of(m.Blamed) if b.actor != "c-0"]
        assert blamed == ["b-0", "a-0", "a-0", "a-master", "a-1"]
        run.nothing_left()


@pytest.mark.faults
def test_a_lost_node_costs_only_what_ran_on_it(folder: Path, ray_cluster: str) -> None:
    side = Resource(cpu=0.1, custom={"side": 1.0})
    roles = {"here": role(), "there": role(resource=side)}
    with node(ray_cluster, side=2) as first, job_run(folder, roles, ray_cluster) as run:
        run.start()
        run.takes_steps("there-0")
        run.takes_steps("here-0")
        kill_node(first)
        run.wait(events.NodeLost)
        run.takes_steps("here-0")
        with node(ray_cluster, side=2):
            run.takes_steps("there-0", 2)
            assert run.outcome().exit_code == 0
        run.unbroken("here-0")
        run.nothing_left()


@pytest.mark.faults
def test_a_master_elsewhere_goes_on_with_what_the_bucket_says(
    folder: Path, ray_cluster: str
) -> None:
    """Its predecessor's machine is gone with its folder: a copy of that and the bucket are left."""
    state = (folder / "bucket").as_uri()
    with job_run(folder, {"a": role(total=2)}, ray_cluster, state=state) as run:
        run.start()
        run.running()
        run.takes_steps("a-0")
        run.kill("a-0")
        run.takes_steps("a-0", 2)
        run.pid("a-1")
        run.kill_master()
        run.lose_folder()
        run.takes_steps("a-1")
        run.start()
        run.wait(events.MasterBegan, lambda e: e.resumed)
        run.takes_steps("a-0", 2)
        run.kill("a-1")
        run.takes_steps("a-1", 2)
        assert run.outcome().exit_code == 0
        assert {life for _, _, life in run.steps("a-0")} == {1, 2}
        run.nothing_left()
