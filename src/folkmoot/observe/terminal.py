"""A run in the terminal: phase and deadline, clients, loss, speed, bytes, what happened last.

On a terminal a live picture; elsewhere a line for each thing that happened.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from folkmoot.observe.picture import Picture

BARS = " ▁▂▃▄▅▆▇█"


def sparkline(values: list[float], width: int = 48) -> str:
    """The values as a row of bars, squeezed to `width`."""
    if not values:
        return ""
    step = max(len(values) / width, 1.0)
    groups = [
        values[int(i * step) : max(int((i + 1) * step), int(i * step) + 1)] for i in range(width)
    ]
    means = [sum(group) / len(group) for group in groups if group]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(BARS[1 + round((value - low) / span * (len(BARS) - 2))] for value in means)


class TerminalView:
    """Call `refresh` a few times a second."""

    def __init__(self, picture: Picture, total_steps: int, live: Any = None) -> None:
        self.picture, self.total_steps, self.live = picture, total_steps, live
        self._last_line = 0.0

    def refresh(self) -> None:
        said = self.picture.update()
        if self.live is not None:
            self.live.update(self._panel())
            return
        for line in said:
            print(line, flush=True)
        if time.monotonic() - self._last_line > 5 and self.picture.training_loss:
            self._last_line = time.monotonic()
            print(f"{self.picture.seconds:7.1f} s  {self._progress()}", flush=True)

    def _progress(self) -> str:
        picture = self.picture
        losses = picture.losses()
        loss = f", loss {losses[-1][1]:.3f}" if losses else ""
        working = [c for c in picture.clients.values() if not c.gone]
        speed = sum(c.tokens_per_second for c in working)
        return (
            f"{picture.phase}, epoch {picture.epoch}, step {picture.step}/{self.total_steps}"
            f"{loss}, {speed:,} tokens/s"
        )

    def _panel(self) -> Any:
        from rich.console import Group
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        picture = self.picture
        table = Table(box=None, padding=(0, 2))
        for column in ("client", "state"):
            table.add_column(column)
        for column in ("rounds", "loss", "tokens/s", "sent", "received", "model"):
            table.add_column(column, justify="right")
        for client in picture.clients.values():
            table.add_row(
                client.name,
                client.state,
                str(client.rounds),
                f"{client.loss:.3f}" if client.loss is not None else "",
                f"{client.tokens_per_second:,}",
                _bytes(client.sent),
                _bytes(client.received),
                client.hash[:8],
                style="dim" if client.gone else "",
            )
        curve = Text(f"loss {sparkline([loss for _, loss in picture.losses()])}", style="cyan")
        trail = Text("\n".join(picture.trail), style="dim")
        return Panel(Group(Text(self._progress()), table, curve, trail), title="folkmoot")


def _bytes(count: int) -> str:
    power = min((len(str(count)) - 1) // 3, 3)
    return f"{count / 1000**power:.1f} {'kMG'[power - 1]}B" if power else f"{count} B"


@contextmanager
def watching(picture: Picture, total_steps: int) -> Iterator[TerminalView]:
    """A view that fits where the output goes."""
    if not sys.stdout.isatty():
        yield TerminalView(picture, total_steps)
        return
    from rich.live import Live

    with Live(refresh_per_second=8) as live:
        yield TerminalView(picture, total_steps, live)
