"""`folkmoot join`: be a client of a run."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from folkmoot.cli import tls


def register(app: typer.Typer) -> None:
    app.command()(join)


def join(
    address: Annotated[str, typer.Argument(help="Where the run's server listens, host:port.")],
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
    tls_ca: tls.Ca = None,
    tls_cert: tls.Cert = None,
    tls_key: tls.Key = None,
) -> None:
    """Join a run and train with the others until it is finished.

    Ctrl-C tells the run and leaves; a second one leaves at once. Needs folkmoot[train].
    """
    from folkmoot.authority.server.client import Denied
    from folkmoot.cli.user_errors import user_errors
    from folkmoot.host.tls import client_tls

    home = folder or Path("out") / run_id / "client"
    with user_errors(Denied, OSError, ValueError, ImportError):
        secured = client_tls(tls_ca, tls_cert, tls_key)
        relays = tuple(relay or ())
        asyncio.run(_join(address, run_id, home, key, bind, relays, threads, store_gb, secured))


async def _join(
    address: str,
    run_id: str,
    folder: Path,
    key: Path | None,
    bind: str,
    relays: tuple[str, ...],
    threads: int,
    store_gb: float,
    secured: Any,
) -> None:
    from folkmoot.host.memory import keep_memory

    keep_memory()  # before torch starts threads
    import torch

    from folkmoot.authority.server.client import ServerAuthority
    from folkmoot.client import events
    from folkmoot.client.learner import Learner
    from folkmoot.client.member import Member
    from folkmoot.client.served_data import SCHEME, ServedFile
    from folkmoot.core.identity import gossip_topic, short
    from folkmoot.exchange.bucket import open_object
    from folkmoot.exchange.peer import Peer, PeerConfig
    from folkmoot.host.event_log import EventLog
    from folkmoot.host.signing import Identity

    if threads:
        torch.set_num_threads(threads)
    identity = Identity.load(key or folder / "client.key")
    log = EventLog(folder / "events.jsonl")
    authority = ServerAuthority(address, run_id, identity, secured)
    typer.echo(f"client {short(identity.public)} joins run '{run_id}' at {address}")
    state = await anext(authority.watch())
    loop = asyncio.get_running_loop()

    def open_url(url: str) -> Any:
        if url.startswith(SCHEME):
            return ServedFile(authority, url.removeprefix(SCHEME), loop)
        return open_object(url)

    learner = await asyncio.to_thread(Learner, state.run, open_url)
    await asyncio.to_thread(learner.rehearse)
    config = PeerConfig(bind=bind, relays=relays, store_bytes=round(store_gb * 1e9))
    async with await Peer.open(identity.private, gossip_topic(run_id), config) as peer:
        parameters = sum(p.numel() for p in learner.model.parameters())
        log.write(events.Began(identity.public.hex(), run_id, parameters))
        member = Member(state.run, identity.public, authority, peer, learner, folder, log.write)
        ended = await _run(member)
        log.write(events.Ended(ended))
    await authority.close()
    typer.echo(f"client {short(identity.public)}: {ended}")


async def _run(member: Any) -> str:
    """Work until the run is finished or we are told to go."""
    going = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, going.set)
    working = asyncio.create_task(member.run())
    leaving = asyncio.create_task(going.wait())
    await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
    if working.done():
        leaving.cancel()
        working.result()
        return "the run is finished"
    # A second Ctrl-C ends the process at once.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().remove_signal_handler(number)
    await member.leave()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    return "left"
