"""The figures and the plot of benchmarks/learning_curves.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Protocol

from results import significant


class Outcome(Protocol):
    @property
    def row(self) -> str: ...
    @property
    def lr(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def points(self) -> list[tuple[int, float]]: ...
    @property
    def loss(self) -> float: ...
    @property
    def bytes_per_token(self) -> float: ...
    @property
    def dense_ratio(self) -> float: ...


BASELINE = "AdamW"


def report(
    outcomes: Sequence[Outcome], names: Sequence[str], rates: Mapping[str, float], out: Path
) -> dict[str, dict[str, Any]]:
    """The figures of each method by name; they are printed, and plotted in `out`."""
    chosen = {n: _seeds(o for o in outcomes if (o.row, o.lr) == (n, rates[n])) for n in names}
    baseline = {o.seed: o.loss for o in chosen.get(BASELINE, [])}
    table = {n: _figures(chosen[n], rates[n], baseline) for n in names if chosen[n]}
    for name, figures in table.items():
        print(f"{name:26}", "  ".join(f"{what} {figure}" for what, figure in figures.items()))
    _plot([chosen[n] for n in names if chosen[n]], out / "learning.png")
    print(f"plot: {out / 'learning.png'}")
    return table


def _seeds(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """One outcome of every seed; runs of two processes may have met."""
    return list({o.seed: o for o in outcomes}.values())


def _figures(runs: Sequence[Outcome], rate: float, baseline: Mapping[int, float]) -> dict[str, Any]:
    ratios = [o.loss / baseline[o.seed] for o in runs if o.seed in baseline]
    fewer = runs[0].dense_ratio
    return {
        "lr": significant(rate, 2),
        "bytes per token": significant(runs[0].bytes_per_token),
        "times fewer bytes": round(fewer) if fewer > 0.9 else significant(fewer, 2),
        "loss": round(mean(o.loss for o in runs), 3),
        "ratio to AdamW": round(mean(ratios), 3) if ratios else "-",
        "±": round(stdev(ratios), 3) if len(ratios) > 1 else "-",
        "seeds": len(runs),
    }


def _plot(rows: Sequence[Sequence[Outcome]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 5.4), layout="constrained")
    colours = pyplot.get_cmap("tab20").colors  # type: ignore[attr-defined]
    for colour, runs in zip(colours, rows, strict=False):
        tokens = [at / 1e6 for at, _ in runs[0].points]
        losses = zip(*([y for _, y in o.points] for o in runs), strict=True)
        curve = [mean(at) for at in losses]
        left.plot(tokens, curve, color=colour, marker="o", ms=2.5, lw=1.2, label=runs[0].row)
        right.scatter(runs[0].bytes_per_token, curve[-1], color=colour, s=30)
    left.set(xlabel="million tokens", ylabel="held-out loss (nats per byte)")
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8
    )
    right.set(xlabel="bytes sent per client and token of the run", xscale="log")
    right.set(title="last loss against bytes")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
