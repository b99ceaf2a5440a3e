"""`folkmoot status`, `pause` and `resume`: look at a run, halt it, let it go on."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from folkmoot.cli import tls

Address = Annotated[str, typer.Argument(help="Where the run's server listens, host:port.")]
RunId = Annotated[str, typer.Option(help="The run's name.")]
Key = Annotated[Path, typer.Option(help="The owner's key: owner.key in the server's folder.")]


# What an owner may order: the message's name, and what the command says of itself.
ORDERS = {
    "pause": ("Pause", "Halt a run once its epoch has drained: nothing that was trained is lost."),
    "resume": ("Resume", "Let a paused run go on."),
}


def register(app: typer.Typer) -> None:
    app.command()(status)
    for name, (message, words) in ORDERS.items():
        app.command(name, help=words)(_order(message))


def status(
    address: Address,
    run_id: RunId,
    key: Key = Path("client.key"),
    tls_ca: tls.Ca = None,
    tls_cert: tls.Cert = None,
    tls_key: tls.Key = None,
) -> None:
    """Say how far a run is. Any key that may join may look."""
    asyncio.run(_ask(address, run_id, key, (tls_ca, tls_cert, tls_key), None))


def _order(name: str) -> Callable[..., None]:
    def order(
        address: Address,
        run_id: RunId,
        key: Key,
        tls_ca: tls.Ca = None,
        tls_cert: tls.Cert = None,
        tls_key: tls.Key = None,
    ) -> None:
        from folkmoot.core.coordinator import messages

        message = getattr(messages, name)()
        asyncio.run(_ask(address, run_id, key, (tls_ca, tls_cert, tls_key), message))

    return order


async def _ask(
    address: str, run_id: str, key: Path, files: tuple[Path | None, ...], message: Any
) -> None:
    from folkmoot.authority import Unreachable
    from folkmoot.authority.server.client import Denied, ServerAuthority
    from folkmoot.cli.user_errors import user_errors
    from folkmoot.host.signing import Identity
    from folkmoot.host.tls import client_tls

    with user_errors(Denied, Unreachable, ValueError, OSError):
        secured = client_tls(*files)
        authority = ServerAuthority(address, run_id, Identity.load(key), secured)
        try:
            refused = await authority.submit(message) if message else None
            async with asyncio.timeout(10):
                state = await anext(authority.watch())
        except TimeoutError:
            raise TimeoutError(f"{address} does not answer: is the server running?") from None
        finally:
            await authority.close()
        if refused is not None:
            raise ValueError(f"refused: {refused.reason}")
    _show(state)


def _show(state: Any) -> None:
    progress, epoch = state.progress, state.epoch
    pausing = ", pausing" if state.pause_wanted and state.phase != "Paused" else ""
    typer.echo(f"{state.run.run_id}: {state.phase}{pausing}, epoch {state.epoch_number}")
    total = state.run.config.total_steps
    typer.echo(f"  step {progress.step} of {total}, {progress.tokens:,} tokens learnt")
    if epoch.clients:
        typer.echo(f"  {state.active} clients in this epoch, {len(epoch.absent)} left it")
    else:
        typer.echo(f"  {len(state.pending)} clients wait for the next epoch")
    kept = state.checkpoint
    if kept.location:
        typer.echo(f"  last checkpoint: step {kept.progress.step} at {kept.location}")
