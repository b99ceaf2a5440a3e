"""`folkmoot job`, as its user has it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.unified.master.home import Home
from support.commands import FOLKMOOT, folkmoot, printed, ran, refused
from unified.master.job_run import ROLES, JobWatch
from unified.substrate.processes import wait_for_file, wait_gone

TESTS = Path(__file__).parents[1]
JOB = f"""
name = "demo"
[roles.a]
entry = "{ROLES}:Stepper"
total = 2
config = {{folder = "."}}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PYTHONPATH", f"{TESTS.parent / 'src'}:{TESTS}")
    monkeypatch.setenv("FOLKMOOT_JOBS", str(tmp_path / "jobs"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(JOB)
    yield tmp_path
    folkmoot("job", "stop", "demo")


def submit() -> str:
    """A process: the job goes on when it has ended."""
    return ran("job", "submit", "job.toml", check=True).stdout


def said(*arguments: str) -> str:
    return printed("job", *arguments)


def test_a_submitted_job_can_be_looked_at_scaled_and_stopped(here: Path) -> None:
    assert "was submitted" in submit()
    watch = watching(here)
    watch.running()
    told = said("status", "demo")
    assert "demo is RUNNING" in told
    os.kill(pid_of("a-0", told), signal.SIGKILL)
    assert "a goes to 3" in said("scale", "demo", "a", "3")
    watch.runs("a-0", nth=2)
    watch.runs("a-2")
    assert "no role 'b'" in folkmoot("job", "scale", "demo", "b", "3").stderr
    told = said("status", "demo")
    pids = [pid_of(f"a-{n}", told) for n in range(3)]
    assert said("stop", "demo") == "stopped\n"
    for pid in pids:
        wait_gone(pid)
    assert not Home(here / "jobs" / "demo").run.exists()
    assert "exit code 143" in said("status", "demo")
    story = said("post-mortem", "demo")
    assert "a-0 was ended by SIGKILL" in story
    assert "started anew (worker): a-0; running again after" in story


def watching(here: Path) -> JobWatch:
    home = Home(here / "jobs" / "demo")
    return JobWatch(home, home.log(".master"))


def pid_of(actor: str, told: str) -> int:
    line = next(line for line in told.splitlines() if line.strip().startswith(actor))
    return int(line.partition("process ")[2].split()[0])


def test_ctrl_c_stops_the_job_and_its_exit_code_says_so(here: Path) -> None:
    command = [*FOLKMOOT, "job", "run", "job.toml"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        wait_for_file(here / "a-1.steps")
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=100)
    assert running.returncode == 130
    assert "the job is asked to stop" in told
    assert not Home(here / "jobs" / "demo").run.exists()


def test_a_job_that_ends_already_can_be_asked_to_stop(here: Path) -> None:
    slow = JOB.replace("Stepper", "Gated") + "timeouts = { stop = 200 }"
    (here / "job.toml").write_text(slow)
    for stage in ("init", "run"):
        (here / f"gate.{stage}").touch()
    submit()
    watch = watching(here)
    watch.running()
    assert said("stop", "demo", "--no-wait") == "it was asked to stop\n"
    assert said("stop", "demo", "--no-wait") == "the job is STOPPING already\n"
    (here / "gate.stop").touch()
    watch.until(watch.home.outcome)


def test_a_killed_launcher_is_no_concern_of_the_job(here: Path) -> None:
    command = [*FOLKMOOT, "job", "run", "job.toml"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
        watch = watching(here)
        watch.running()
        running.kill()
    assert "RUNNING" in said("status", "demo")
    (here / "finish").touch()
    watch.until(watch.home.outcome)
    assert "exit code 0" in said("status", "demo")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "nowhere.toml"), "nowhere.toml"),
        (("run", "nowhere"), "job.toml, or module:job"),
        (("run", "nowhere:job"), "no module 'nowhere'"),
        (("status", "nothing"), "there is no job 'nothing'"),
        (("run", "typo.toml"), "did you mean 'total'?"),
        (("run", "job.toml", "--on", "moon"), "there is no substrate 'moon'"),
    ],
)
def test_mistakes_are_told_in_sentences(here: Path, arguments: tuple[str, ...], told: str) -> None:
    (here / "typo.toml").write_text(JOB.replace("total", "totla"))
    assert told in refused("job", *arguments)
