"""What participants reported, round by round: means weighted by samples, and their plot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from folkmoot.federated.coordinator.events import Reported
from folkmoot.observe.figure import figure
from folkmoot.observe.logs import read_log

Curves = Mapping[str, Mapping[int, float]]


def reported_means(records: Iterable[Any]) -> Curves:
    """For each figure its mean in each round, over all who reported it."""
    sums: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for record in records:
        if not isinstance(record, Reported) or record.samples <= 0:
            continue
        for name, value in _figures(record):
            total = sums[name][record.round]
            total[0] += value * record.samples
            total[1] += record.samples
    return {
        name: {round_: total / weight for round_, (total, weight) in sorted(rounds.items())}
        for name, rounds in sums.items()
    }


def _figures(record: Reported) -> Iterator[tuple[str, float]]:
    """Single numbers; of a history its last value."""
    last = {name: values[-1] for name, values in record.history.items() if values}
    for name, value in {**last, **record.metrics}.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            yield name, float(value)


def plot_rounds(log: Path, image: Path, title: str) -> list[str]:
    """Plot what the log at `log` holds; the names of the curves, none when nobody reported."""
    curves = reported_means(entry.record for entry in read_log(log, "coordinator"))
    if not curves:
        return []
    with figure(image, title, "round") as axes:
        for name, rounds in sorted(curves.items()):
            axes.plot(list(rounds), list(rounds.values()), "o-", ms=3, label=name)
    return sorted(curves)
