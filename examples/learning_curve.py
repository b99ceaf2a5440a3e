"""What the examples show while they learn: a live table on a terminal, lines in a log, a plot."""

import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from folkmoot.learning.evaluate import Score
from folkmoot.learning.methods.protocol import Contribution


class Curve:
    """Losses by round, and what was sent for them."""

    def __init__(self, dense_bytes: int) -> None:
        self.dense_bytes = dense_bytes
        self.train: list[tuple[int, float]] = []
        self.held_out: list[tuple[int, Score]] = []
        self.payload = 0

    def add_round(self, step: int, made: Sequence[Contribution]) -> None:
        self.train.append((step, sum(one.loss for one in made) / len(made)))
        self.payload = max(len(one.payload) for one in made)

    def add_score(self, step: int, score: Score) -> None:
        self.held_out.append((step, score))

    def line(self) -> str:
        held_out = f"{self.held_out[-1][1].loss:.3f}" if self.held_out else "-"
        recent = [loss for _, loss in self.train[-20:]]
        return (
            f"loss {sum(recent) / len(recent):.3f}  held-out {held_out}  sent per client"
            f" {self.payload / 1000:.1f} kB ({self.dense_bytes / self.payload:,.0f}x below fp32)"
        )

    def summary(self) -> str:
        if not self.held_out:
            return "no round was finished"
        first, last = self.held_out[0][1], self.held_out[-1][1]
        return (
            f"held-out    loss {first.loss:.2f} -> {last.loss:.2f}, perplexity"
            f" {first.perplexity:,.0f} -> {last.perplexity:,.1f}\n"
            f"sent        {self.payload:,} bytes per client and round, where fp32 gradients are"
            f" {self.dense_bytes:,}"
        )

    def draw(self, path: Path, title: str) -> None:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
        axes.plot(*zip(*self.train, strict=True), lw=0.6, alpha=0.5, label="training batch")
        points = [(step, score.loss) for step, score in self.held_out]
        axes.plot(*zip(*points, strict=True), marker="o", ms=3, label="held-out files")
        axes.set(xlabel="round", ylabel="loss (nats per token)", title=title)
        axes.legend()
        figure.savefig(path, dpi=120)
        pyplot.close(figure)


class CtrlC:
    """Notes a first Ctrl-C, so that a round is ended and not torn; a second one kills."""

    pressed = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *ignored: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _press(self, *ignored: object) -> None:
        self.pressed = True
        signal.signal(signal.SIGINT, self._before)


class Display:
    """A live bar for a person; one line for each tenth of the way for a log."""

    def __init__(self, steps: int, curve: Curve) -> None:
        self.steps, self.curve = steps, curve
        self.start = time.monotonic()
        self.live: Live | None = None
        if sys.stdout.isatty():
            self.bar = Progress(
                TextColumn("round {task.completed}/{task.total}"),
                BarColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
            )
            self.task = self.bar.add_task("", total=steps)
            self.live = Live(self.bar, console=Console(), refresh_per_second=4)

    def show(self, done: int) -> None:
        if self.live:
            self.bar.update(self.task, completed=done, description=self.curve.line())
        elif done == 1 or done * 10 // self.steps > (done - 1) * 10 // self.steps:
            seconds = time.monotonic() - self.start
            self.say(f"round {done:4}/{self.steps}  {seconds:4.0f} s  {self.curve.line()}")

    def say(self, line: str) -> None:
        if self.live:
            self.live.console.print(line)
        else:
            print(line, flush=True)

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        if self.live:
            self.live.stop()
