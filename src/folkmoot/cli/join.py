"""`folkmoot join`: be a client of a run."""

from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli import tls
from folkmoot.cli.control import Address


def join(
    address: Address,
    run_id: Annotated[
        str, typer.Option(help="The run to join; an address on Solana has it already.")
    ] = "",
    folder: Annotated[
        Path | None, typer.Option(help="Folder for this client's key, log and downloads.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            help="This client's key (`folkmoot key` makes one); else one of the folder's."
        ),
    ] = None,
    bind: Annotated[
        str | None,
        typer.Option(help="Where peers reach this client; else its address towards the run."),
    ] = None,
    relay: Annotated[
        list[str] | None,
        typer.Option(help="Relay for peers behind NAT; 'default' is iroh's public set."),
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads for training; 0 is all.")] = 0,
    store_gb: Annotated[
        float, typer.Option(help="The most memory for what peers fetch from us, in GB.", min=0.01)
    ] = 4.0,
    trust: Annotated[
        list[str] | None,
        typer.Option(
            help="A folder, file or url that the run may use on this machine: its data, its"
            " checkpoints. What is in the current folder it may; 'all' for everything."
        ),
    ] = None,
    mapped: Annotated[
        list[str] | None,
        typer.Option("--map", help="THEIRS=OURS: a place of ours to use for one the run names."),
    ] = None,
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
    from folkmoot.authority.open import split_url
    from folkmoot.cli.interrupt import run_until_interrupted
    from folkmoot.core.coordinator.config import RUN_ID_RULE, is_run_id
    from folkmoot.core.identity import short
    from folkmoot.host.memory import keep_memory
    from folkmoot.host.named_code import import_module
    from folkmoot.host.signing import Identity
    from folkmoot.host.tls import client_tls

    keep_memory()  # before torch starts threads
    kind, place = split_url(address)
    if not run_id and kind == "solana":
        run_id = place.partition("@")[0]
    if not run_id:
        raise ValueError(f"{address} may keep many runs: name the one to join with --run-id")
    if not is_run_id(run_id):
        raise ValueError(f"--run-id {run_id!r}: it {RUN_ID_RULE}")
    places = dict(_pair(text) for text in mapped or ())
    home = folder or Path("out") / run_id / "client"
    identity = Identity.read(key) if key else Identity.load(home / "client.key")
    name = short(identity.public)
    typer.echo(f"client {name} joins run '{run_id}' at {address}")
    typer.echo("  loads torch")
    import torch

    from folkmoot.observe.narrator import Narrator
    from folkmoot.runs.join import join_run

    for module in modules or ():
        import_module(module)
    if threads:
        torch.set_num_threads(threads)
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
            trust=trust or (),
            places=places,
            tell=Narrator(lambda line: typer.echo(f"  {line}")),
        )
    )
    typer.echo(f"client {name}: {'the run is finished' if finished else 'left'}")


def _pair(text: str) -> tuple[str, str]:
    theirs, equals, ours = text.partition("=")
    if not theirs or not equals or not ours:
        raise ValueError(f"--map {text}: expected THEIRS=OURS, two places")
    return theirs, ours
