"""`folkmoot status`, `pause` and `resume`: look at a run, halt it, let it go on."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from folkmoot.cli import tls

Address = Annotated[
    str, typer.Argument(help="Where the run's state is kept: a server's host:port.")
]
RunId = Annotated[str, typer.Option(help="The run's name.")]
Key = Annotated[Path, typer.Option(help="The owner's key: owner.key in the server's folder.")]


def register(app: typer.Typer) -> None:
    say = "Say how far a run is. Any key that may join may look."
    app.command("status", help=say)(_command("run_state", Path("client.key")))
    halt = "Halt a run once its epoch has drained: nothing that was trained is lost."
    app.command("pause", help=halt)(_command("pause_run"))
    app.command("resume", help="Let a paused run go on.")(_command("resume_run"))


def _command(what: str, default_key: Any = ...) -> Callable[..., None]:
    """A command that asks `what` of `runs.control`; with no default, it needs the key."""

    def command(
        address: Address,
        run_id: RunId,
        key: Key = default_key,
        tls_ca: tls.Ca = None,
        tls_cert: tls.Cert = None,
        tls_key: tls.Key = None,
    ) -> None:
        _ask(what, address, run_id, key, tls_ca, tls_cert, tls_key)

    return command


def _ask(what: str, address: str, run_id: str, key: Path, *files: Path | None) -> None:
    from folkmoot.authority import Denied, Unreachable
    from folkmoot.cli.user_errors import user_errors
    from folkmoot.host.tls import client_tls
    from folkmoot.runs import control

    with user_errors(Denied, Unreachable, ValueError, OSError):
        ask = getattr(control, what)
        _show(asyncio.run(ask(address, run_id, key, client_tls(*files))))


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
