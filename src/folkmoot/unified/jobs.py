"""Run a job from Python or from the command line: here until it is over, or on its own.

    outcome = run_job(spec)                   # starts it, waits, gives back how it ended
    home = submit_job(spec)                   # returns at once; the job goes on without us

A job whose folder is there already and that is not over is taken up where it was.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

from folkmoot.core.job import JobSpec
from folkmoot.unified.launcher import MasterLauncher, submit
from folkmoot.unified.master.home import Home, HomeError, JobOutcome, JobSettings
from folkmoot.unified.master.open_journal import check_url
from folkmoot.unified.preload import preload
from folkmoot.unified.substrate.open import SUBSTRATES, unknown

JOBS = "FOLKMOOT_JOBS"


def jobs_folder() -> Path:
    """Where jobs are kept if nobody says otherwise."""
    return Path(os.environ.get(JOBS) or Path.home() / ".folkmoot" / "jobs")


def home_of(name: str, folder: Path | None = None) -> Home:
    return Home(folder or jobs_folder() / name)


def prepare(
    spec: JobSpec,
    folder: Path | None = None,
    substrate: str = "local",
    ray_address: str = "",
    state: str = "",
    alone: float = 600.0,
) -> Home:
    """The job's folder, made or found again; `state` is a url for its journal (`open_journal`)."""
    if state:
        check_url(state)
    if substrate not in SUBSTRATES:
        raise unknown(substrate)
    if spec.channels:
        from folkmoot.unified.channels import with_holders

        spec = with_holders(spec)
    home = home_of(spec.name, folder)
    if home.exists:
        return _found_again(home, spec)
    settings = JobSettings(
        substrate=substrate,
        preload=preload(spec),
        alone=alone,
        ray_address=ray_address,
        state=state,
    )
    home.create(spec, settings)
    return home


def run_job(
    spec: JobSpec,
    folder: Path | None = None,
    substrate: str = "local",
    ray_address: str = "",
    state: str = "",
    say: Callable[[str], None] = lambda _: None,
) -> JobOutcome:
    """Until it is over. Ctrl-C stops the job and waits for its end."""
    return hold_job(prepare(spec, folder, substrate, ray_address, state), say)


def hold_job(
    home: Home, say: Callable[[str], None] = lambda _: None, take_over: bool = False
) -> JobOutcome:
    """Keep a master for the job until it is over; `take_over` replaces one that hangs."""
    if home.settings().substrate == "inprocess":
        return _hold_here(home)
    launcher = MasterLauncher(home, say=say, take_over=take_over)
    try:
        return launcher.run()
    except KeyboardInterrupt:
        say("interrupted; the job is asked to stop")
        launcher.interrupt(signal.SIGINT)
        return launcher.wait()


def submit_job(
    spec: JobSpec,
    folder: Path | None = None,
    substrate: str = "local",
    ray_address: str = "",
    state: str = "",
) -> Home:
    """Start it on its own; it outlives this process."""
    home = prepare(spec, folder, substrate, ray_address, state)
    if home.settings().substrate == "inprocess":
        raise HomeError("a job in this process ends with it: run it, or submit it to local or ray")
    submit(home)
    return home


def _hold_here(home: Home) -> JobOutcome:
    from folkmoot.unified.master.__main__ import hold

    asyncio.run(hold(home))
    outcome = home.outcome()
    assert outcome
    return outcome


def _found_again(home: Home, spec: JobSpec) -> Home:
    if home.outcome():
        raise HomeError(
            f"the job in {home.folder} is over: remove that folder, or give --folder, to run it"
            " once more"
        )
    if home.spec() != spec:
        raise HomeError(
            f"{home.folder} holds a job that is not over and was written down differently: stop it"
            f" with `folkmoot job stop {home.spec().name}`, or give --folder"
        )
    return home
