"""The loss of a run as a PNG, with what happened to its clients marked."""

from pathlib import Path

from folkmoot.observe.picture import Picture


def plot_loss(picture: Picture, path: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    losses = picture.losses()
    axes.plot([s for s, _ in losses], [v for _, v in losses], label="training", linewidth=1)
    if picture.held_out:
        steps = sorted(picture.held_out)
        axes.plot(steps, [picture.held_out[s] for s in steps], "o-", ms=3, label="held out")
    for mark in picture.marks:
        axes.axvline(mark.step, color="tab:red" if mark.text == "left" else "tab:green", ls=":")
        axes.annotate(f"client {mark.text}", (mark.step, axes.get_ylim()[1]), rotation=90, va="top")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats)")
    axes.set_title(title)
    axes.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
