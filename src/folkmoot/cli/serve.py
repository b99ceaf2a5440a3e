"""`folkmoot serve`: keep a run's state for clients to join."""

from pathlib import Path
from typing import Annotated, Any

import typer

from folkmoot.cli.ready import ReadyFd, tell_ready

RunFile = Annotated[Path, typer.Argument(help="The run's configuration, run.toml.")]
Allow = Annotated[
    Path | None,
    typer.Option(help="File of public keys (hex, one a line) that may join; else anyone may."),
]


def serve(
    file: RunFile,
    listen: Annotated[
        str, typer.Option(help="Where to listen, host:port; port 0 takes a free one.")
    ] = "127.0.0.1:7400",
    state: Annotated[
        Path | None, typer.Option(help="Folder for the journal, the log and the owner's key.")
    ] = None,
    allow: Allow = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of token files for clients without data (urls 'run:NAME')."),
    ] = None,
    verify_checkpoints: Annotated[
        str,
        typer.Option(
            help="Read every checkpoint before it counts: auto (if the store can be read from here;"
            " else the checkpointer is believed), always, never."
        ),
    ] = "auto",
    ready_fd: ReadyFd = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM) to serve TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="Demand client certificates signed by this CA (PEM).")
    ] = None,
) -> None:
    """Keep a run: clients join it with `folkmoot join`.

    The state is journaled before anything is answered. Killed and started again on the same
    folder, it resumes the same round with the same clients.
    """
    from folkmoot.host.memory import collect_seldom, share_heap

    share_heap()  # before gRPC starts threads
    from folkmoot.authority.server.claims import ClaimPolicy
    from folkmoot.cli.interrupt import run_until_interrupted
    from folkmoot.host.tls import server_tls
    from folkmoot.observe.narrator import ServerNarrator
    from folkmoot.runs.config import load_run
    from folkmoot.runs.serve import read_keys, serve_run

    collect_seldom()
    run = load_run(file)
    tls = server_tls(tls_cert, tls_key, tls_client_ca)
    if verify_checkpoints not in tuple(ClaimPolicy):
        raise ValueError("--verify-checkpoints is auto, always or never")
    served = serve_run(
        run,
        state or Path("out") / run.run_id / "server",
        listen_at=listen,
        allow=read_keys(allow) if allow else (),
        data=data,
        verify_checkpoints=verify_checkpoints,
        tls=tls,
        tell=ServerNarrator(lambda line: typer.echo(f"  {line}")),
    )
    run_until_interrupted(_serve(served, tls, ready_fd, file))
    typer.echo("stopped; start again with the same --state to go on")


async def _serve(served: Any, tls: Any, ready_fd: int | None, file: Path) -> None:
    from folkmoot.host.routes import is_loopback, shown_address

    async with served as server:
        tell_ready(ready_fd, server.address)
        how = "resumed" if server.resumed else "new"
        typer.echo(f"run '{server.run_id}' ({how}) at {server.address}")
        how_to_reach = " --tls-ca CA.pem" if tls else ""
        if tls and tls.client_ca:
            how_to_reach += " --tls-cert CERT.pem --tls-key KEY.pem"
        here = f"{shown_address(server.address)} --run-id {server.run_id}{how_to_reach}"
        typer.echo(f"  join:  folkmoot join {here}")
        if server.state.run.model.data is not None and not server.state.run.model.fingerprint:
            typer.echo(
                "  data:  not on this machine, so nobody is checked for having the same. Where it"
                f" is, `folkmoot data fingerprint {file}` prints a line for the file"
            )
        if is_loopback(server.address):
            typer.echo("         (from this machine only; for others add --listen 0.0.0.0:7400)")
        typer.echo(f"  owner: folkmoot pause {here} --key {server.owner_key}")
        _tell_what_differs(server, file)
        await server.forever()


def _tell_what_differs(server: Any, file: Path) -> None:
    """Loudly: who edits a file expects that it counts."""
    if not server.changes:
        return
    held = server.owner_key.parent
    typer.secho(f"WARNING: {file} is not what is being run", fg="red", bold=True, err=True)
    typer.echo(f"  The run in {held} goes on as it was. To make it what the file says:", err=True)
    for change in server.changes:
        typer.echo(f"    {change}   (possible {change.when})", err=True)
    typer.echo(f"  folkmoot update {file} {server.address} --key {server.owner_key}", err=True)
    typer.echo("  To begin a new run instead, give it another --state folder.", err=True)
