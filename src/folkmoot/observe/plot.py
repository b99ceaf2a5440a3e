"""The loss of a run as a PNG, with what happened to its clients marked."""

from collections.abc import Iterable
from pathlib import Path

from folkmoot.observe.figure import figure
from folkmoot.observe.picture import Picture, PlotMark


def _by_step(marks: Iterable[PlotMark]) -> dict[int, dict[str, None]]:
    """What happened at each step, each thing once, in its order."""
    texts: dict[int, dict[str, None]] = {}
    for mark in marks:
        texts.setdefault(mark.step, {})[mark.text] = None
    return texts


def plot_loss(picture: Picture, path: Path, title: str) -> None:
    with figure(path, title, "step", "loss (nats)") as axes:
        losses = picture.losses()
        axes.plot([s for s, _ in losses], [v for _, v in losses], label="training", linewidth=1)
        if picture.held_out:
            steps = sorted(picture.held_out)
            axes.plot(steps, [picture.held_out[s] for s in steps], "o-", ms=3, label="held out")
        top = axes.get_ylim()[1]
        for number, (step, texts) in enumerate(_by_step(picture.marks).items()):
            axes.axvline(step, color="tab:red", ls=":", linewidth=1)
            lower = (3, -3 - 11 * (number % 4))  # further down, so that neighbours can be read
            said = {"textcoords": "offset points", "va": "top", "fontsize": 8}
            axes.annotate(", ".join(texts), (step, top), lower, **said)
