"""`folkmoot status`, `pause`, `resume` and `extend`: look at a run, halt it, let it go on."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from folkmoot.cli import tls

Address = Annotated[
    str,
    typer.Argument(
        help="Where the run is: a server's host:port, store:tcp://…, store:etcd://… or"
        " solana:run_id@http://…."
    ),
]
RunId = Annotated[str, typer.Option(help="The run's name.")]
Key = Annotated[Path, typer.Option(help="The owner's key: owner.key in the server's folder.")]
AnyKey = Annotated[
    Path | None, typer.Option(help="A key on the run's allow-list; a run for all needs none.")
]


def register(app: typer.Typer) -> None:
    say = "Say how far a run is. Any key that may join may look."
    app.command("status", help=say)(_command("run_state", None))
    halt = "Halt a run once its epoch has drained: nothing that was trained is lost."
    app.command("pause", help=halt)(_command("pause_run"))
    app.command("resume", help="Let a paused run go on.")(_command("resume_run"))
    app.command()(extend)


def _command(what: str, default_key: Any = ...) -> Callable[..., None]:
    """A command that asks `what` of `runs.control`; with no default, it needs the key."""

    def command(
        address: Address,
        run_id: RunId,
        key: Any = default_key,
        tls_ca: tls.Ca = None,
        tls_cert: tls.Cert = None,
        tls_key: tls.Key = None,
    ) -> None:
        from folkmoot.host.tls import client_tls
        from folkmoot.runs import control

        secured = client_tls(tls_ca, tls_cert, tls_key)
        show(asyncio.run(getattr(control, what)(address, run_id, key, secured)))

    command.__annotations__["key"] = Key if default_key is ... else AnyKey
    return command


def extend(
    address: Address,
    run_id: RunId,
    total_steps: Annotated[int, typer.Option(help="Train until this step.", min=1)],
    key: Key,
    tls_ca: tls.Ca = None,
    tls_cert: tls.Cert = None,
    tls_key: tls.Key = None,
) -> None:
    """Give a run more steps, while it runs or after it was finished."""
    from folkmoot.host.tls import client_tls
    from folkmoot.runs.control import extend_run

    secured = client_tls(tls_ca, tls_cert, tls_key)
    state = asyncio.run(extend_run(address, run_id, total_steps, key, secured))
    show(state)
    planned = getattr(state.run.model.lr, "total_steps", total_steps)
    if planned < total_steps:
        typer.echo(
            f"  the learning rate ends at step {planned}: change [model.lr] in the run's file,"
            " and `folkmoot update` it while the run is paused"
        )
    if not state.checkpoint.location and not state.run.model.checkpoint:
        typer.echo("  the run stores no checkpoints: with its clients gone, it begins anew")


def show(state: Any) -> None:
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
