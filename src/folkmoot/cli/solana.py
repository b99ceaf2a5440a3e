"""`folkmoot solana`: a run that a program on Solana keeps, and a network of one to try it out."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli.group import add_group
from folkmoot.cli.ready import ReadyFd, tell_ready
from folkmoot.cli.serve import RunFile

Url = Annotated[
    str, typer.Argument(help="The run: solana:<run_id>@<rpc-url>; more nodes after commas.")
]
Key = Annotated[
    Path, typer.Option(help="The owner's key: of `folkmoot key`, or a Solana keypair file.")
]


def register(app: typer.Typer) -> None:
    commands = (localnet, create_run, update, authorize, pause, resume, tick, status, close)
    add_group(app, "solana", "A run on Solana, and a local network to try it on.", *commands)


def create_run(
    file: RunFile,
    url: Annotated[str, typer.Option(help="JSON-RPC of the cluster, http://host:port.")],
    key: Key,
    closed: Annotated[
        bool, typer.Option("--closed", help="Only clients that are authorized may join.")
    ] = False,
    points: Annotated[
        int, typer.Option(help="Points that the finishers of an epoch share.", min=0)
    ] = 0,
    follow: Annotated[
        Path | None, typer.Option(help="Stay, and write events.jsonl in this folder.")
    ] = None,
    ready_fd: ReadyFd = None,
) -> None:
    """Put a run on chain. Its owner pays the rent, and gets it back when the run is closed."""
    from solders.pubkey import Pubkey

    from folkmoot.cli.interrupt import run_until_interrupted
    from folkmoot.host.signing import Identity
    from folkmoot.runs.config import load_run
    from folkmoot.runs.solana import create_on_chain, follow_on_chain

    run = load_run(file)
    typer.echo(f"run '{run.run_id}' is put on chain; {Pubkey(Identity.load(key).public)} pays")
    making = create_on_chain(run, url, key, open_to_all=not closed, points_per_epoch=points)
    place, new = asyncio.run(making)
    typer.echo(f"run '{run.run_id}' ({'created' if new else 'was there already'})")
    typer.echo(f"  join:  folkmoot join {place} --run-id {run.run_id}")
    typer.echo(f"  owner: folkmoot solana pause {place} --key {key}")
    tell_ready(ready_fd, place)
    if follow is not None:
        finished = run_until_interrupted(follow_on_chain(place, follow))
        typer.echo("the run is finished" if finished else "stopped; the run goes on without us")


def update(url: Url, file: RunFile, key: Key) -> None:
    """Make the run on chain the one in the file; `folkmoot update` says what may change when."""
    from folkmoot.runs.config import load_run
    from folkmoot.runs.control import update_run

    _, changed = asyncio.run(update_run(url, load_run(file), key))
    for change in changed:
        typer.echo(f"  {change}")
    typer.echo("updated" if changed else "nothing to change")


def authorize(
    url: Url,
    clients: Annotated[list[str], typer.Argument(help="Public keys, base58 or 64 hex digits.")],
    key: Key,
    revoke: Annotated[bool, typer.Option("--revoke", help="Let them in no longer.")] = False,
) -> None:
    """Let clients into a run that is closed."""
    from folkmoot.runs import solana

    known = [_public(name) for name in clients]
    changed = asyncio.run(solana.authorize(url, key, known, revoke))
    already = f", {len(known) - changed} already" if changed < len(known) else ""
    typer.echo(f"{changed} {'revoked' if revoke else 'authorized'}{already}")


def _public(name: str) -> bytes:
    """The bytes of a public key, as `folkmoot key` prints it or Solana's tools do."""
    from solders.pubkey import Pubkey

    hex_digits = 64
    try:
        return bytes.fromhex(name) if len(name) == hex_digits else bytes(Pubkey.from_string(name))
    except ValueError:
        raise ValueError(
            f"{name} is not a public key: give 64 hex digits, as `folkmoot key` prints them, or"
            " base58, as Solana's tools do"
        ) from None


def pause(url: Url, key: Key) -> None:
    """Halt a run once its epoch has drained: nothing that was trained is lost."""
    _order("pause_run", url, key)


def resume(url: Url, key: Key) -> None:
    """Let a paused run go on."""
    _order("resume_run", url, key)


def _order(what: str, url: str, key: Path) -> None:
    from folkmoot.cli.control import show
    from folkmoot.runs import control
    from folkmoot.runs.solana import place_of

    show(asyncio.run(getattr(control, what)(url, place_of(url).run_id, key)))


def tick(url: Url, key: Key) -> None:
    """Let time count, if something is due. Anybody may; clients do it by themselves."""
    asyncio.run(_as_owner(url, key, "tick"))
    typer.echo("ticked")


def status(url: Url) -> None:
    """Say how far a run is, and what its clients have earned. Anybody may look."""
    from solders.pubkey import Pubkey

    from folkmoot.cli.control import show
    from folkmoot.runs.solana import standing

    found = asyncio.run(standing(url))
    show(found.state)
    typer.echo(f"  account {found.address}")
    for client, points in found.points:
        typer.echo(f"  {Pubkey(client)}: {points} points")


def close(url: Url, key: Key) -> None:
    """Close a run that is paused, finished or empty; the rent comes back."""
    asyncio.run(_as_owner(url, key, "close_run"))
    typer.echo("closed")


async def _as_owner(url: str, key: Path, what: str) -> None:
    from folkmoot.runs.solana import owning

    await getattr(owning(url, key), what)()


def localnet(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            help="Port of JSON-RPC; WebSocket is one above. 0: free ones.", min=0, max=65534
        ),
    ] = 8899,
    fund: Annotated[
        list[str] | None, typer.Option(help="A public key that gets 1,000 SOL at once.")
    ] = None,
    drop: Annotated[
        float, typer.Option(help="Share of transactions that are lost.", min=0.0, max=1.0)
    ] = 0.0,
    delay: Annotated[float, typer.Option(help="Seconds before a transaction runs.", min=0.0)] = 0.0,
    ready_fd: ReadyFd = None,
) -> None:
    """Serve Solana's JSON-RPC on this machine until Ctrl-C, with Folkmoot's program deployed.

    The virtual machine is the real one, and any client of Solana can use it. It keeps nothing:
    when this process ends, the network is gone.
    """
    from folkmoot.cli.interrupt import run_until_interrupted

    try:
        from solders.pubkey import Pubkey

        from folkmoot.authority.solana.instructions import PROGRAM_ID
        from folkmoot.authority.solana.localnet.ledger import Faults, LocalLedger
        from folkmoot.authority.solana.localnet.serve import serving
    except ImportError as error:
        raise ImportError(f"{error}: pip install 'folkmoot[solana]'") from None
    ledger = LocalLedger(faults=Faults(drop=drop, delay=delay))
    for key in fund or ():
        ledger.airdrop(Pubkey(_public(key)), 1000 * 10**9)

    async def serve() -> None:
        async with serving(ledger, host, port) as net:
            typer.echo(f"localnet at {net.url}, subscriptions at port {net.port + 1}")
            typer.echo(f"  program {PROGRAM_ID}")
            typer.echo("  it keeps nothing on disk: when it ends, the network is gone")
            tell_ready(ready_fd, net.url)
            await asyncio.Event().wait()

    run_until_interrupted(serve())
    typer.echo("stopped; the network is gone")
