"""A job on processes: whoever is killed, the others go on and the job ends well."""

import os
import signal
from pathlib import Path

import pytest

from folkmoot.core.job import Backoff, ChannelSpec, JobSpec, RoleBudget, RoleSpec, Timeouts
from folkmoot.core.job import messages as m
from folkmoot.core.job.config import FailureDomain
from folkmoot.unified.jobs import run_job
from folkmoot.unified.master import events
from folkmoot.unified.master.home import REPLACED, Home
from unified.master.job_run import ASKING, ROLES, job_run, role


def test_a_job_runs_to_its_end_and_leaves_nothing(folder: Path, ray: str) -> None:
    with job_run(folder, {"a": role(total=2), "b": role()}, ray) as run:
        run.start()
        run.running()
        run.takes_steps("b-0")
        assert run.outcome().exit_code == 0
        assert run.masters[0].returncode == 0
        run.nothing_left()


def test_roles_call_each_other(folder: Path, ray: str) -> None:
    with job_run(folder, ASKING, ray) as run:
        run.start()
        assert run.outcome().exit_code == 0
        run.nothing_left()


def test_one_killed_worker_comes_back_and_the_others_do_not_notice(folder: Path, ray: str) -> None:
    with job_run(folder, {"a": role(total=2)}, ray) as run:
        run.start()
        run.takes_steps("a-0")
        run.takes_steps("a-1")
        run.kill("a-0")
        run.takes_steps("a-0", incarnation=2)
        assert run.outcome().exit_code == 0
        run.unbroken("a-1")
        blamed = run.all_of(m.Blamed)
        assert [(b.actor, b.kind) for b in blamed] == [("a-0", "died")]


def test_the_second_death_of_a_role_is_made_good_like_the_first(folder: Path, ray: str) -> None:
    """P2: a role that is thought to be in recovery for ever ignores its next death."""
    patient = Backoff(calm=3600.0)
    with job_run(folder, {"a": role(total=2, failure_domain="role", backoff=patient)}, ray) as run:
        run.start()
        for life in (1, 2, 3):
            run.takes_steps("a-0", life)
            run.takes_steps("a-1", life)
            if life < 3:
                run.kill("a-0", life)
        assert run.outcome().exit_code == 0
        assert [(d.actor, d.seconds) for d in run.all_of(m.Delayed)] == [("a-0", 0.5)]


def test_a_dead_master_costs_healthy_workers_nothing(folder: Path, ray: str) -> None:
    """P1: a master that comes back must not restart a job that is well."""
    with job_run(folder, {"a": role(total=2)}, ray) as run:
        run.start()
        run.running()
        run.takes_steps("a-0")
        run.kill_master()
        run.takes_steps("a-0", more=10)
        run.start()
        run.wait(events.MasterBegan, lambda e: e.resumed)
        run.takes_steps("a-1")
        assert run.outcome().exit_code == 0
        run.unbroken("a-0")
        run.unbroken("a-1")
        assert not run.all_of(m.Blamed)
        run.nothing_left()


def test_what_dies_while_there_is_no_master_is_made_good_by_the_next(
    folder: Path, ray: str
) -> None:
    """P6: what the dead master knew is known to the next one, too."""
    with job_run(folder, {"a": role(total=2, budget=RoleBudget(worker=2))}, ray) as run:
        run.start()
        run.takes_steps("a-0")
        run.kill("a-0")
        run.takes_steps("a-0", 2)
        run.kill_master()
        run.kill("a-0", 2)
        run.start()
        run.takes_steps("a-0", 3)
        run.kill("a-0", 3)  # one more than its budget
        outcome = run.outcome()
        assert outcome.exit_code != 0
        assert "a-0" in outcome.reason
        run.nothing_left()


def test_a_worker_that_finished_while_there_was_no_master_is_not_run_again(
    folder: Path, ray: str
) -> None:
    with job_run(folder, {"a": role()}, ray) as run:
        run.start()
        run.takes_steps("a-0")
        run.kill_master()
        (folder / "finish").touch()
        run.start()
        assert run.outcome().exit_code == 0
        run.unbroken("a-0")


def test_a_killed_fork_server_costs_nothing(folder: Path) -> None:
    with job_run(folder, {"a": role(total=2)}) as run:
        run.start()
        run.takes_steps("a-0")
        os.kill(run.fork_server(), signal.SIGKILL)
        run.kill("a-1")
        run.takes_steps("a-1", 2)
        assert run.outcome().exit_code == 0
        run.unbroken("a-0")
        run.nothing_left()


def test_a_sub_master_dies_and_then_a_worker(folder: Path, ray: str) -> None:
    with job_run(folder, {"a": role(total=2, sub_master=f"{ROLES}:Caretaker")}, ray) as run:
        run.start()
        run.takes_steps("a-0")
        run.kill("a-master")
        run.runs("a-master", nth=2)
        run.kill("a-0")
        run.takes_steps("a-0", 2)
        assert run.outcome().exit_code == 0
        assert (folder / "checked").read_text().startswith("a-0 a-1\n")


def test_an_error_is_reported_with_its_traceback_and_ends_the_job_if_it_should(
    folder: Path, ray: str
) -> None:
    with job_run(folder, {"a": role("Fails", on_error="fail"), "b": role()}, ray) as run:
        run.start()
        run.takes_steps("b-0")
        (folder / "fail").touch()
        raised = run.wait(events.ActorRaised)
        assert "ArithmeticError: the loss is not a number" in raised.traceback
        outcome = run.outcome()
        assert outcome.exit_code == 1
        assert "the loss is not a number" in outcome.reason
        assert "ArithmeticError" in run.home.log("a-0").read_text()
        run.nothing_left()


@pytest.mark.parametrize("domain", ["role", "job"])
def test_an_error_starts_its_domain_anew(folder: Path, ray: str, domain: FailureDomain) -> None:
    roles = {"a": role("FailsOnce", failure_domain=domain), "b": role()}
    with job_run(folder, roles, ray) as run:
        run.start()
        run.takes_steps("b-0")
        (folder / "fail").touch()
        run.takes_steps("a-0", 2)
        run.takes_steps("b-0", 2 if domain == "job" else 1)
        assert run.outcome().exit_code == 0
        (blamed,) = run.all_of(m.Blamed)
        assert (blamed.actor, blamed.kind) == ("a-0", "error")


def test_a_worker_that_cannot_be_made_says_why(folder: Path, ray: str) -> None:
    broken = RoleSpec(entry=f"{ROLES}:breaks_at_birth", config={"unknown": 1}, on_error="fail")
    with job_run(folder, {"a": broken}, ray) as run:
        run.start()
        outcome = run.outcome()
        assert outcome.exit_code == 1
        assert "unknown" in outcome.reason


def test_a_stopped_process_is_found_silent_and_replaced(folder: Path, ray: str) -> None:
    """P17: a hung actor is really killed."""
    quick = Timeouts(silent=4.0 if ray else 2.0)
    with job_run(folder, {"a": role(timeouts=quick), "b": role()}, ray) as run:
        run.start()
        run.running()
        run.takes_steps("b-0")
        life = run.life_of("a-0")  # its second already, if the machine let it starve
        run.takes_steps("a-0", life)
        os.kill(run.pid("a-0", life), signal.SIGSTOP)
        run.takes_steps("a-0", life + 1)
        assert run.outcome().exit_code == 0
        run.unbroken("b-0")
        assert "no sign of life" in run.wait(m.Blamed).how
        run.nothing_left()


def test_what_a_channel_held_is_gone_when_the_job_is_stopped(folder: Path, ray: str) -> None:
    before = set(os.listdir("/dev/shm"))
    filling = {"a": role("Fills", writes=["c"])}
    with job_run(folder, filling, ray, channels={"c": ChannelSpec(holder="a")}) as run:
        master = run.start()
        run.takes_steps("a-0")
        held = [Path(line) for line in (folder / "held").read_text().splitlines()]
        assert held
        assert all(path.exists() for path in held)
        master.terminate()
        assert run.stopped().exit_code == 128 + signal.SIGTERM
        run.nothing_left()
        assert not any(path.parent.exists() for path in held)
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "folkmoot" in name]


def test_what_does_not_stop_is_killed(folder: Path, ray: str) -> None:
    with job_run(folder, {"a": role("Deaf", timeouts=Timeouts(stop=0.3))}, ray) as run:
        master = run.start()
        run.running()
        master.terminate()
        assert run.stopped().exit_code == 128 + signal.SIGTERM
        run.nothing_left()


def test_a_hung_master_is_replaced_by_a_standby_and_fenced_off(folder: Path, ray: str) -> None:
    """A zombie that wakes up finds the journal taken, and ends without having done anything."""
    roles = {"a": role(total=2, timeouts=Timeouts(silent=20.0))}
    with job_run(folder, roles, ray) as run:
        zombie = run.start()
        run.running()
        run.takes_steps("a-1")
        zombie.send_signal(signal.SIGSTOP)
        run.start("--take-over")
        run.wait(events.MasterBegan, lambda e: e.resumed)
        run.kill("a-0")
        run.takes_steps("a-0", 2)
        zombie.send_signal(signal.SIGCONT)
        assert zombie.wait(60) == REPLACED
        assert run.outcome().exit_code == 0
        run.unbroken("a-1")
        run.nothing_left()


def test_a_standby_takes_over_when_the_master_is_gone(folder: Path, ray: str) -> None:
    with job_run(folder, {"a": role(total=2)}, ray) as run:
        master = run.start()
        run.running()
        run.takes_steps("a-0")
        run.start("--standby")
        master.kill()
        run.wait(events.MasterBegan, lambda e: e.resumed)
        assert run.outcome().exit_code == 0
        run.unbroken("a-0")
        run.nothing_left()


def test_a_job_runs_in_the_threads_of_one_process(folder: Path) -> None:
    """For a debugger: nothing but this process."""
    spec = JobSpec(name="threads", roles=ASKING)
    outcome = run_job(spec, folder / "job", substrate="inprocess")
    assert outcome.exit_code == 0
    assert not Home(folder / "job").run.exists()
