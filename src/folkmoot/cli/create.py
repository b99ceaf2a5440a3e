"""`folkmoot create`: put a run into a shared store, where nobody has to serve it."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli.ready import ReadyFd, tell_ready
from folkmoot.cli.serve import Allow, RunFile
from folkmoot.cli.store import tell_if_absent


def create(
    file: RunFile,
    store: Annotated[
        str, typer.Option(help="The store: tcp://host:port, or etcd://host:port,host:port.")
    ],
    folder: Annotated[
        Path | None, typer.Option(help="Folder for the owner's key and the log.")
    ] = None,
    allow: Allow = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Stay, and write events.jsonl until it is finished.")
    ] = False,
    ready_fd: ReadyFd = None,
) -> None:
    """Put a run into a store: clients join it with `folkmoot join store:…`.

    Its clients keep it together. A run that is there already, with the same configuration, is
    left as it is.
    """
    from folkmoot.cli.interrupt import run_until_interrupted
    from folkmoot.runs.config import load_run
    from folkmoot.runs.create import create_run, follow_run
    from folkmoot.runs.serve import read_keys

    run = load_run(file)
    home = folder or Path("out") / run.run_id / "server"
    allowed = read_keys(allow) if allow else frozenset()
    tell_if_absent(store)
    made = asyncio.run(create_run(run, store, home, allow=allowed))
    how = "created" if made.new else "was there already"
    typer.echo(f"run '{run.run_id}' ({how}) in {store}")
    here = f"{made.url} --run-id {run.run_id}"
    typer.echo(f"  join:  folkmoot join {here}")
    typer.echo(f"  owner: folkmoot pause {here} --key {made.owner_key}")
    tell_ready(ready_fd, made.url)
    if follow:
        finished = run_until_interrupted(follow_run(made, home))
        typer.echo("the run is finished" if finished else "stopped; the run goes on without us")
