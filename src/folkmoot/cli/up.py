"""`folkmoot up`: a whole run on this machine, to try things out."""

from pathlib import Path
from typing import Annotated, Any

import typer

# Seconds between two looks at the logs, which is how often the view can change.
REFRESH = 0.2


def register(app: typer.Typer) -> None:
    app.command()(up)


def up(
    file: Annotated[Path, typer.Argument(help="The run's configuration, run.toml.")],
    clients: Annotated[int, typer.Option(help="How many clients to start.", min=1)] = 2,
    folder: Annotated[
        Path | None, typer.Option(help="Where everything goes: state, logs, plot.")
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads for each client.", min=1)] = 1,
) -> None:
    """Start a server and clients, watch them train, and sum up at the end.

    Ctrl-C stops everything cleanly; `folkmoot up` again with the same folder goes on.
    """
    from folkmoot.cli.local import LocalRun
    from folkmoot.cli.user_errors import user_errors
    from folkmoot.core.config import ConfigError
    from folkmoot.runs.config import load_run

    with user_errors(ConfigError, OSError, RuntimeError):
        run = load_run(file)
        home = folder or Path("out") / run.run_id
        with LocalRun(file, run.run_id, home, threads) as local:
            local.serve()
            for _ in range(clients):
                local.join()
            try:
                picture = watch(local, run)
            except KeyboardInterrupt:
                typer.echo("stopping; run the same command again to go on")
                return
            sum_up(picture, home, run)


def watch(local: Any, run: Any, each: Any = lambda picture: None) -> Any:
    """Show the run until it is finished; `each` is called with the picture as it changes."""
    from folkmoot.observe.picture import Picture
    from folkmoot.observe.terminal import watching

    picture = Picture(local.folder)
    with watching(picture, run.config.total_steps) as view:
        while local.running():
            view.refresh()
            each(picture)
            for name in local.failed():
                picture.note(f"{name} ended by itself:\n{local.output(name)}", "a client left")
            local.wait(REFRESH)
            if local["server"].poll() is not None:
                raise RuntimeError(f"the server ended:\n{local.output('server')}")
        view.refresh()
    if picture.phase != "Finished":
        name = next(iter(local.clients))
        raise RuntimeError(f"every client ended before the run did:\n{local.output(name)}")
    return picture


def sum_up(picture: Any, folder: Path, run: Any) -> None:
    """What a run came to."""
    from folkmoot.observe.plot import plot_loss

    losses = picture.losses()
    if not losses:
        return
    tokens = picture.tokens * run.model.max_seq_len
    typer.echo(f"\n{picture.phase} at step {picture.step} of {run.config.total_steps}")
    typer.echo(f"  loss      {losses[0][1]:.3f} -> {losses[-1][1]:.3f}")
    if picture.held_out:
        typer.echo(f"  held out  {picture.held_out[max(picture.held_out)]:.3f}")
    typer.echo(f"  learnt    {tokens:,} tokens in {picture.seconds:.0f} s")
    hashes = {c.hash for c in picture.clients.values() if c.hash and c.state == "ended"}
    typer.echo(f"  model     {', '.join(sorted(h[:16] for h in hashes)) or 'unknown'}")
    sent = sum(c.round_sent for c in picture.clients.values())
    least = sum(c.round_results for c in picture.clients.values())
    if least:
        typer.echo(f"  network   {sent:,} bytes sent in rounds, {sent / least:.2f}x the least")
    if picture.checkpoint:
        typer.echo(f"  stored    {picture.checkpoint}")
    plot = folder / "loss.png"
    plot_loss(picture, plot, run.run_id)
    typer.echo(f"  plot      {plot}")
