"""`folkmoot join`: be a client of a run."""

from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli import tls


def register(app: typer.Typer) -> None:
    app.command()(join)


def join(
    address: Annotated[
        str, typer.Argument(help="Where the run's state is kept: a server's host:port.")
    ],
    run_id: Annotated[str, typer.Option(help="The run to join.")],
    folder: Annotated[
        Path | None, typer.Option(help="Folder for this client's key, log and downloads.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="This client's key; made when it does not exist.")
    ] = None,
    bind: Annotated[
        str, typer.Option(help="Where peers reach this client; 0.0.0.0:0 for other machines.")
    ] = "127.0.0.1:0",
    relay: Annotated[
        list[str] | None,
        typer.Option(help="Relay for peers behind NAT; 'default' is iroh's public set."),
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads for training; 0 is all.")] = 0,
    store_gb: Annotated[
        float, typer.Option(help="The most memory for what peers fetch from us, in GB.", min=0.01)
    ] = 4.0,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", help="Module to import first, such as one with a method of ours."),
    ] = None,
    tls_ca: tls.Ca = None,
    tls_cert: tls.Cert = None,
    tls_key: tls.Key = None,
) -> None:
    """Join a run and train with the others until it is finished.

    Ctrl-C tells the run and leaves; a second one leaves at once. Needs folkmoot[train].
    """
    from folkmoot.authority import Denied
    from folkmoot.cli.interrupt import run_until_interrupted
    from folkmoot.cli.user_errors import user_errors
    from folkmoot.cli.user_modules import import_module
    from folkmoot.core.identity import short
    from folkmoot.host.memory import keep_memory
    from folkmoot.host.signing import Identity
    from folkmoot.host.tls import client_tls

    keep_memory()  # before torch starts threads
    home = folder or Path("out") / run_id / "client"
    with user_errors(Denied, OSError, ValueError, ImportError):
        import torch

        from folkmoot.runs.join import join_run

        for module in modules or ():
            import_module(module)
        if threads:
            torch.set_num_threads(threads)
        key = key or home / "client.key"
        name = short(Identity.load(key).public)
        typer.echo(f"client {name} joins run '{run_id}' at {address}")
        finished = run_until_interrupted(
            join_run(
                address,
                run_id,
                home,
                key=key,
                bind=bind,
                relays=relay or (),
                store_gb=store_gb,
                tls=client_tls(tls_ca, tls_cert, tls_key),
            )
        )
    typer.echo(f"client {name}: {'the run is finished' if finished else 'left'}")
