"""`folkmoot serve`: keep a run's state for clients to join."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    file: Annotated[Path, typer.Argument(help="The run's configuration, run.toml.")],
    listen: Annotated[
        str, typer.Option(help="Where to listen, host:port; port 0 takes a free one.")
    ] = "127.0.0.1:7400",
    state: Annotated[
        Path | None, typer.Option(help="Folder for the journal, the log and the owner's key.")
    ] = None,
    allow: Annotated[
        Path | None,
        typer.Option(help="File of public keys (hex, one a line) that may join; else anyone may."),
    ] = None,
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
    ready_fd: Annotated[
        int | None,
        typer.Option(hidden=True, help="Write the address to this descriptor when listening."),
    ] = None,
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
    from folkmoot.authority.server.claims import Policy
    from folkmoot.cli.user_errors import user_errors
    from folkmoot.core.config import ConfigError
    from folkmoot.core.coordinator import decode_run
    from folkmoot.host.journal import JournalError
    from folkmoot.host.tls import server_tls

    with user_errors(ConfigError, JournalError, OSError, ValueError, ImportError):
        run = decode_run(file.read_text(), file.name)
        tls = server_tls(tls_cert, tls_key, tls_client_ca)
        if verify_checkpoints not in tuple(Policy):
            raise ValueError("--verify-checkpoints is auto, always or never")
        folder = state or Path("out") / run.run_id / "server"
        policy = Policy(verify_checkpoints)
        asyncio.run(_serve(run, folder, listen, _keys(allow), tls, data, policy, ready_fd))


def _claims(policy: Any, tell: Any) -> Any:
    """What checks checkpoints, as far as this installation can."""
    from folkmoot.authority.server.claims import Claims, Policy

    try:
        from folkmoot.runs.stored_checkpoint import check_stored
    except ImportError as error:
        if policy is Policy.always:
            raise
        typer.echo(f"checkpoints are believed unread: {error} (folkmoot[federated] has it)")
        return None
    return Claims(check_stored, policy, tell)


def _keys(file: Path | None) -> frozenset[bytes]:
    if file is None:
        return frozenset()
    lines = [line.split("#")[0].strip() for line in file.read_text().splitlines()]
    try:
        return frozenset(bytes.fromhex(line) for line in lines if line)
    except ValueError as error:
        raise ValueError(f"{file}: not a list of public keys in hex: {error}") from None


async def _serve(
    run: Any,
    folder: Path,
    address: str,
    allowed: frozenset[bytes],
    tls: Any,
    data: Path | None,
    policy: Any,
    ready_fd: int | None,
) -> None:
    from folkmoot.authority.server.serve import collect_seldom, listen
    from folkmoot.authority.server.service import Access
    from folkmoot.host.event_log import EventLog
    from folkmoot.host.signing import Identity

    collect_seldom()
    owner = Identity.load(folder / "owner.key")
    log = EventLog(folder / "events.jsonl")
    access = Access(allowed, frozenset({owner.public}))
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    journal = folder / "run.journal"
    claims = _claims(policy, log.write)
    async with listen(
        run, journal, address, access, tls, lambda effect, now: log.write(effect), data, claims
    ) as server:
        host = address.rpartition(":")[0]
        if ready_fd is not None:
            os.write(ready_fd, f"{host}:{server.port}\n".encode())
            os.close(ready_fd)
        how = "resumed" if server.keeper.resumed else "new"
        typer.echo(f"run '{run.run_id}' ({how}) at {host}:{server.port}")
        how_to_reach = " --tls-ca CA.pem" if tls else ""
        if tls and tls.client_ca:
            how_to_reach += " --tls-cert CERT.pem --tls-key KEY.pem"
        here = f"{host}:{server.port} --run-id {run.run_id}{how_to_reach}"
        typer.echo(f"  join:  folkmoot join {here}")
        typer.echo(f"  owner: folkmoot pause {here} --key {folder / 'owner.key'}")
        waiting = asyncio.ensure_future(stopping.wait())
        ends: list[asyncio.Future[Any]] = [server.failed, waiting]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if server.failed.done():
            server.failed.result()
    log.close()
    typer.echo("stopped; start again with the same --state to go on")
