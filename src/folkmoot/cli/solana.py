"""`folkmoot solana`: a run that a program on Solana keeps, and a network of one to try it out."""

import asyncio
import os
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="A run on Solana, and a local network to try it on.")
    group.callback()(lambda: None)  # a group of one command is still a group
    group.command()(localnet)
    app.add_typer(group, name="solana")


def localnet(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            help="Port of JSON-RPC; WebSocket is one above. 0: free ones.", min=0, max=65534
        ),
    ] = 8899,
    fund: Annotated[
        list[str] | None, typer.Option(help="A public key (base58) that gets 1,000 SOL at once.")
    ] = None,
    drop: Annotated[
        float, typer.Option(help="Share of transactions that are lost.", min=0.0, max=1.0)
    ] = 0.0,
    delay: Annotated[float, typer.Option(help="Seconds before a transaction runs.", min=0.0)] = 0.0,
    ready_fd: Annotated[
        int | None,
        typer.Option(hidden=True, help="Write the url to this descriptor when listening."),
    ] = None,
) -> None:
    """Serve Solana's JSON-RPC on this machine until Ctrl-C, with Folkmoot's program deployed.

    The virtual machine is the real one, and any client of Solana can use it. It keeps nothing:
    when this process ends, the network is gone.
    """
    from folkmoot.cli.interrupt import run_until_interrupted
    from folkmoot.cli.user_errors import user_errors

    with user_errors(OSError, ValueError, ImportError):
        try:
            from solders.pubkey import Pubkey

            from folkmoot.authority.solana.localnet.ledger import PROGRAM_ID, Faults, Ledger
            from folkmoot.authority.solana.localnet.serve import serving
        except ImportError as error:
            raise ImportError(f"{error}: pip install 'folkmoot[solana]'") from None
        ledger = Ledger(faults=Faults(drop=drop, delay=delay))
        for key in fund or ():
            ledger.airdrop(Pubkey.from_string(key), 1000 * 10**9)

        async def serve() -> None:
            async with serving(ledger, host, port) as net:
                typer.echo(f"localnet at {net.url}, subscriptions at port {net.port + 1}")
                typer.echo(f"  program {PROGRAM_ID}")
                typer.echo("  it keeps nothing on disk: when it ends, the network is gone")
                if ready_fd is not None:
                    os.write(ready_fd, net.url.encode())
                    os.close(ready_fd)
                await asyncio.Event().wait()

        run_until_interrupted(serve())
    typer.echo("stopped; the network is gone")
