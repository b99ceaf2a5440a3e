"""A run of processes on this machine, shown in the terminal from its logs until it ends."""

from collections.abc import Callable
from pathlib import Path

from folkmoot.core.coordinator import Run
from folkmoot.core.user_error import UserError
from folkmoot.observe.picture import Picture
from folkmoot.observe.plot import plot_loss
from folkmoot.observe.terminal import watching
from folkmoot.runs.local_processes import LocalRun

# Seconds between two looks at the logs, which is how often the view can change.
REFRESH = 0.2


def watch(
    local: LocalRun, run: Run, each: Callable[[Picture], None] = lambda picture: None
) -> Picture:
    """Show the run until it is finished; `each` is called with the picture as it changes."""
    picture = Picture(local.folder)
    with watching(picture, run.config.total_steps) as view:
        while local.running():
            view.refresh()
            each(picture)
            for name in local.failed():
                picture.note(f"{name} ended by itself:\n{local.output(name)}", "a client left")
            local.wait(REFRESH)
            for name in [name for name in local.keepers if local[name].poll() is not None]:
                view.refresh()
                if picture.phase != "Finished":
                    raise UserError(f"the {name} ended:\n{local.output(name)}")
        view.refresh()
    if picture.phase != "Finished":
        name = next(iter(local.clients))
        raise UserError(f"every client ended before the run did:\n{local.output(name)}")
    return picture


def sum_up(picture: Picture, folder: Path, run: Run) -> None:
    """What a run came to."""
    losses = picture.losses()
    if not losses:
        return
    tokens = picture.tokens * run.model.max_seq_len
    print(f"\n{picture.phase} at step {picture.step} of {run.config.total_steps}")
    print(f"  loss      {losses[0][1]:.3f} -> {losses[-1][1]:.3f}")
    if picture.held_out:
        print(f"  held out  {picture.held_out[max(picture.held_out)]:.3f}")
    print(f"  learnt    {tokens:,} tokens in {picture.seconds:.0f} s")
    hashes = {c.hash for c in picture.clients.values() if c.hash and c.state == "ended"}
    print(f"  model     {', '.join(sorted(h[:16] for h in hashes)) or 'unknown'}")
    sent = sum(c.round_sent for c in picture.clients.values())
    least = sum(c.round_results for c in picture.clients.values())
    if least:
        print(f"  network   {sent:,} bytes sent in rounds, {sent / least:.2f}x the least")
    if picture.checkpoint:
        print(f"  stored    {picture.checkpoint}")
    plot = folder / "loss.png"
    plot_loss(picture, plot, run.run_id)
    print(f"  plot      {plot}")
