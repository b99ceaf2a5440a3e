"""A figure that becomes a PNG: what is drawn in its block, with a title, axes and a legend."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def figure(path: Path, title: str, x: str, y: str = "") -> Iterator[Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    made, axes = pyplot.subplots(figsize=(8, 4.5))
    try:
        yield axes
        axes.set(title=title, xlabel=x, ylabel=y)
        axes.legend()
        made.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        made.savefig(path, dpi=110)
    finally:
        pyplot.close(made)
