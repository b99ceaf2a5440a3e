"""`folkmoot update`: make a run that is under way what its file says by now."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli import tls


def update(
    file: Annotated[Path, typer.Argument(help="The run's configuration, run.toml, as edited.")],
    address: Annotated[
        str,
        typer.Argument(help="Where the run is: a server's host:port, store:tcp://… or the like."),
    ] = "127.0.0.1:7400",
    key: Annotated[
        Path | None, typer.Option(help="The owner's key; out/RUN_ID/server/owner.key if not given.")
    ] = None,
    tls_ca: tls.Ca = None,
    tls_cert: tls.Cert = None,
    tls_key: tls.Key = None,
) -> None:
    """Change a run that is under way to what its file says.

    Times, numbers of clients, batch sizes and total_steps change at any time; what clients compute
    with, while the run is paused or waits; what the model is made of, before it was trained. If
    one key cannot change now, nothing does.
    """
    from folkmoot.cli.control import show
    from folkmoot.host.tls import client_tls
    from folkmoot.runs.config import load_run
    from folkmoot.runs.control import update_run

    run = load_run(file)
    owner = key or Path("out") / run.run_id / "server" / "owner.key"
    secured = client_tls(tls_ca, tls_cert, tls_key)
    state, changed = asyncio.run(update_run(address, run, owner, secured))
    for change in changed:
        typer.echo(f"changed {change}")
    if not changed:
        typer.echo(f"nothing to change: the run is as {file} says")
    show(state)
