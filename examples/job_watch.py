"""What the examples of jobs show: the trainer's lines as it prints them, who was killed, a plot."""

import argparse
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from folkmoot.core.job import JobSpec
from folkmoot.core.job import messages as m
from folkmoot.host.event_log import LogReader, records_in
from folkmoot.unified.jobs import run_job
from folkmoot.unified.master.home import Home, JobOutcome

# Seconds between two looks into the log.
LOOK = 0.2


def add_where(parser: argparse.ArgumentParser) -> None:
    """The option that says on which cluster the job runs, if it is to run on one."""
    told = "of a Ray cluster that finds the examples on its PYTHONPATH; auto for the one here"
    parser.add_argument("--ray-address", default="", help=told)


def run_here(spec: JobSpec, folder: Path, ray_address: str = "") -> JobOutcome:
    """Run a job whose roles are in `examples`: on processes, or on a cluster."""
    # The workers import the example by its name.
    here = str(Path(__file__).resolve().parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.getenv("PYTHONPATH")])])
    where = "ray" if ray_address else "local"
    return run_job(spec, folder, where, ray_address, say=lambda line: print(line, flush=True))


def run_and_show(
    spec: JobSpec, folder: Path, actor: str = "trainer-0", ray_address: str = ""
) -> JobOutcome:
    """What `actor` prints is printed here, too, and then how it ended."""
    began, over = time.monotonic(), threading.Event()
    shown = threading.Thread(target=_show, args=(Home(folder).log(actor), over))
    shown.start()
    try:
        outcome = run_here(spec, folder, ray_address)
    finally:
        over.set()
        shown.join()
    tell_end(outcome, time.monotonic() - began, deaths(folder))
    return outcome


def _show(log: Path, over: threading.Event) -> None:
    at, last = 0, False
    while not last:
        last = over.wait(LOOK)
        if log.exists():
            with log.open(errors="replace") as file:
                file.seek(at)
                print(file.read(), end="", flush=True)
                at = file.tell()


def deaths(folder: Path) -> list[str]:
    """Who was killed, from the job's event log."""
    entries = LogReader(Home(folder).events, records_in(m)).new()
    causes = [entry.record for entry in entries if isinstance(entry.record, m.Blamed)]
    return sorted(cause.actor for cause in causes if cause.kind == "died")


def add_deaths(parser: argparse.ArgumentParser) -> None:
    """The options of examples in which rollout workers are killed."""
    parser.add_argument("--dies-at", type=int, default=10, help="call at which rollout-0 is killed")
    parser.add_argument("--nobody-dies", action="store_true")
    parser.add_argument("--seed", type=int, default=1)


def tell_end(outcome: JobOutcome, seconds: float, killed: Sequence[str]) -> None:
    print(f"{outcome.reason or 'finished'} after {seconds:.0f} s")
    print(f"killed on the way: {', '.join(killed) or 'nobody'}")


def draw(
    path: Path, points: Sequence[tuple[float, float]], deaths: Sequence[float], **labels: str
) -> None:
    """A curve, with a mark wherever a worker was missing."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(*zip(*points, strict=True), lw=1.2)
    for number, at in enumerate(deaths):
        label = "" if number else "a rollout worker was missing"
        axes.axvline(at, color="tab:red", lw=0.8, ls="--", label=label)
    axes.set(**labels)
    if deaths:
        axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
