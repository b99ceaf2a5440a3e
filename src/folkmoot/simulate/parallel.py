"""Many seeds of one world, some at a time."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context

from folkmoot.simulate.report import WorldReport
from folkmoot.simulate.worlds import play

CHUNK = 25


class Chunk(WorldReport, frozen=True):
    """The seeds of one chunk together: `failed` are the reports of those that failed."""

    worlds: int = 0
    failed: tuple[WorldReport, ...] = ()


def play_chunk(name: str, start: int, stop: int) -> Chunk:
    counts: Counter[str] = Counter()
    failed = []
    events = 0
    for seed in range(start, stop):
        report = play(name, seed)
        events += report.events
        counts.update(report.counts)
        if report.violation:
            failed.append(report)
    return Chunk(start, events, counts=dict(counts), worlds=stop - start, failed=tuple(failed))


def play_many(name: str, start: int, stop: int, jobs: int) -> Generator[Chunk, None, None]:
    """Play seeds `start` to before `stop`, chunk by chunk, as they are done.

    Closing the iterator abandons what has not begun; the chunks that run are waited for.
    """
    bounds = ((at, min(at + CHUNK, stop)) for at in range(start, stop, CHUNK))
    if jobs <= 1:
        yield from (play_chunk(name, *bound) for bound in bounds)
        return
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_ignore_interrupts)
    try:
        # A few chunks ahead, so that an interrupt finds little in the queue.
        running: set[Future[Chunk]] = set()
        for bound in bounds:
            running.add(pool.submit(play_chunk, name, *bound))
            if len(running) >= 2 * jobs:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        for future in running:
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ignore_interrupts() -> None:
    """Ctrl-C is the parent's to handle; a worker that dies of it would print a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
