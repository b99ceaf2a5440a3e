"""`folkmoot job`: run a job of many roles, look at it, change it, stop it, ask what happened."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from folkmoot.cli.group import add_group

if TYPE_CHECKING:
    from folkmoot.unified.master.home import Home
    from folkmoot.unified.master.owner import OwnersLine

Source = Annotated[str, typer.Argument(help="The job: job.toml, or module:job in Python.")]
Name = Annotated[str, typer.Argument(help="The job's name, or its folder.")]
Folder = Annotated[
    Path | None, typer.Option(help="The job's folder; in ~/.folkmoot/jobs if not given.")
]
On = Annotated[str, typer.Option("--on", help="Where actors live: local, ray or inprocess.")]
State = Annotated[
    str,
    typer.Option(
        help="Store or bucket for the journal (etcd://…, s3://…); the folder if not given."
    ),
]
RayAddress = Annotated[str, typer.Option(help="Of the Ray cluster; auto finds the one here.")]


def register(app: typer.Typer) -> None:
    about = "One job of many roles, which survives any single death."
    add_group(app, "job", about, run, submit, status, logs, stop, scale, post_mortem)


def run(
    source: Source,
    folder: Folder = None,
    on: On = "local",
    ray_address: RayAddress = "",
    state: State = "",
    standby: Annotated[
        bool, typer.Option(help="Wait beside a job that runs, and hold it if its master dies.")
    ] = False,
) -> None:
    """Run a job until it is over; its exit code is ours. Ctrl-C stops the job.

    A job that was interrupted by a power cut or kill -9 is taken up where it was.
    """
    from folkmoot.unified.api import load_job
    from folkmoot.unified.jobs import hold_job, prepare
    from folkmoot.unified.master.standby import wait_for_turn

    home = prepare(load_job(source), folder, on, ray_address, state)
    take_over = wait_for_turn(home) if standby else False
    _follow(home)
    outcome = hold_job(home, _say, take_over)
    _say(f"{outcome.reason} (exit code {outcome.exit_code})")
    raise typer.Exit(outcome.exit_code)


def submit(
    source: Source,
    folder: Folder = None,
    on: On = "local",
    ray_address: RayAddress = "",
    state: State = "",
) -> None:
    """Start a job on its own and return at once."""
    from folkmoot.unified.api import load_job
    from folkmoot.unified.jobs import submit_job

    spec = load_job(source)
    home = submit_job(spec, folder, on, ray_address, state)
    typer.echo(f"{spec.name} was submitted; it is kept in {home.folder}")


def status(name: Name) -> None:
    """Say in what stage a job and its actors are."""

    for line in _status(_home(name)):
        typer.echo(line)


def logs(
    name: Name,
    actor: Annotated[str, typer.Argument(help="One actor, as rollout-0; all if not given.")] = "",
    lines: Annotated[int, typer.Option("--lines", "-n", help="The last so many of each.")] = 100,
) -> None:
    """Show what the actors of a job printed."""
    from folkmoot.unified.master.home import HomeError

    home = _home(name)
    wanted = [home.log(actor)] if actor else sorted(home.log("*").parent.glob("[!.]*.log"))
    for path in wanted:
        if not path.exists():
            there = ", ".join(p.stem for p in sorted(path.parent.glob("[!.]*.log")))
            raise HomeError(f"{actor} has printed nothing; there is: {there or 'nobody'}")
        for line in path.read_text(errors="replace").splitlines()[-lines:]:
            typer.echo(line if actor else f"[{path.stem}] {line}")


def stop(
    name: Name,
    wait: Annotated[bool, typer.Option(help="Return when nothing of it is left.")] = True,
) -> None:
    """Stop a job; one that ends already is waited for."""
    home = _home(name)
    if outcome := home.outcome():
        typer.echo(f"it is over already: {outcome.reason}")
        return
    line = _line(home)
    refused = line.stop()
    if wait:
        line.until_gone()
    typer.echo(refused or ("stopped" if wait else "it was asked to stop"))


def scale(
    name: Name,
    role: Annotated[str, typer.Argument(help="The role to change.")],
    total: Annotated[int, typer.Argument(help="How many workers it should have.", min=0)],
) -> None:
    """Give a role more or fewer workers, while the job runs."""
    from folkmoot.unified.master.home import HomeError

    if refused := _line(_home(name)).scale(role, total):
        raise HomeError(refused)
    typer.echo(f"{role} goes to {total}")


def post_mortem(name: Name) -> None:
    """Say who failed first, what followed from it and what it cost."""
    from folkmoot.observe.post_mortem import read_story, told

    for line in told(read_story(_home(name).events)):
        typer.echo(line)


def _home(name: str) -> Home:
    from folkmoot.unified.jobs import home_of, jobs_folder
    from folkmoot.unified.master.home import HomeError

    for home in (home_of(name), home_of(name, Path(name))):
        if home.exists:
            return home
    folder = jobs_folder()
    known = sorted(path.name for path in folder.glob("*")) if folder.is_dir() else []
    told = f"there are: {', '.join(known)}" if known else f"{folder} holds none"
    raise HomeError(f"there is no job {name!r}, and no folder of that name with one; {told}")


def _line(home: Home) -> OwnersLine:
    from folkmoot.unified.master.home import HomeError
    from folkmoot.unified.master.owner import OwnersLine
    from folkmoot.unified.rpc.errors import WorkerDied

    try:
        return OwnersLine(home)
    except WorkerDied:
        if outcome := home.outcome():
            raise HomeError(f"the job is over: {outcome.reason}") from None
        spec = home.spec()
        raise HomeError(
            f"{spec.name} has no master now. Its actors go on for {home.settings().alone:g} s;"
            f" run it again with the same folder ({home.folder}) to take it up"
        ) from None


def _status(home: Home) -> Iterator[str]:
    if outcome := home.outcome():
        yield f"{home.spec().name} is over: {outcome.reason} (exit code {outcome.exit_code})"
        return
    job = _line(home).status()
    yield f"{job.name} is {job.phase}; {job.failures} failures so far; master of epoch {job.epoch}"
    for actor in job.actors:
        numbers = "  ".join(f"{name}={value}" for name, value in actor.numbers.items())
        where = f"process {actor.pid} on {actor.node or 'no node'}"
        told = f"incarnation {actor.incarnation}, {where}, {actor.failures} failures"
        yield f"  {actor.actor:<20} {actor.stage:<8} {told}  {numbers}".rstrip()


def _follow(home: Home) -> None:
    """Print what happens, in a thread, as it does."""
    from folkmoot.observe.job_lines import follow

    threading.Thread(target=follow, args=(home.events, _say), daemon=True).start()


def _say(text: str) -> None:
    print(f"folkmoot: {text}", file=sys.stderr, flush=True)
