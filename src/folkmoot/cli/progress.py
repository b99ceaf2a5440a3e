"""Progress on the terminal: a live bar for a person, a line now and then for a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with how much of `total` is done."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.update(task, completed=done)
    else:
        yield _plain(label, total)


def _plain(label: str, total: int) -> Callable[[int], None]:
    told = -1

    def advance(done: int) -> None:
        nonlocal told
        tenth = 10 * done // max(total, 1)
        if tenth > told:
            told = tenth
            print(f"{label}: {10 * tenth} %", file=sys.stderr, flush=True)

    return advance
