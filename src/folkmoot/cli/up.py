"""`folkmoot up`: a whole run on this machine, to try things out."""

from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli.serve import RunFile
from folkmoot.cli.store import tell_if_absent


def up(
    file: RunFile,
    clients: Annotated[int, typer.Option(help="How many clients to start.", min=1)] = 2,
    folder: Annotated[
        Path | None, typer.Option(help="Where everything goes: state, logs, plot.")
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads for each client.", min=1)] = 1,
    authority: Annotated[
        str,
        typer.Option(help="Who keeps the run's state: server, store (a shared one) or solana."),
    ] = "server",
    store: Annotated[
        str,
        typer.Option(help="The store to use, tcp://… or etcd://…; else one is started here."),
    ] = "",
) -> None:
    """Start a server and clients, watch them train, and sum up at the end.

    Ctrl-C stops everything cleanly; `folkmoot up` again with the same folder goes on. A run in a
    store goes on as long as the store does: the one that is started here ends with this command,
    and so does the Solana network that --authority solana starts.
    """
    from folkmoot.observe.local_run import sum_up, watch
    from folkmoot.runs.config import load_run
    from folkmoot.runs.local_processes import LocalRun

    if authority not in ("server", "store", "solana"):
        raise ValueError(f"--authority {authority}: it is server, store or solana")
    if store and authority != "store":
        raise ValueError("--store is for a run that a store holds: add --authority store")
    run = load_run(file)
    if store:
        tell_if_absent(store)
    home = folder or Path("out") / run.run_id
    with LocalRun(file, run.run_id, home, threads) as local:
        if authority == "store":
            local.keep_in_store(store)
        elif authority == "solana":
            local.keep_on_solana()
        else:
            local.serve()
        for _ in range(clients):
            local.join()
        try:
            picture = watch(local, run)
        except KeyboardInterrupt:
            lost = authority != "server" and not store
            again = f"what the {authority} held is gone" if lost else "run the same command again"
            typer.echo(f"stopping; {again}{'' if lost else ' to go on'}")
            return
        sum_up(picture, home, run)
