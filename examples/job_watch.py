"""What the examples of jobs show: the trainer's lines as it prints them, who was killed, a plot."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from folkmoot.core.job import JobSpec
from folkmoot.host.event_log import LogReader, records_in
from folkmoot.unified.jobs import run_job
from folkmoot.unified.master import events
from folkmoot.unified.master.home import Home, Outcome

# Seconds between two looks into the log.
LOOK = 0.2


def run_and_show(spec: JobSpec, folder: Path, actor: str = "trainer-0") -> Outcome:
    """Run a job whose roles are in `examples`; what `actor` prints is printed here, too."""
    # The workers import the example by its name.
    here = str(Path(__file__).resolve().parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.getenv("PYTHONPATH")])])
    over = threading.Event()
    shown = threading.Thread(target=_show, args=(Home(folder).log(actor), over))
    shown.start()
    try:
        return run_job(spec, folder, say=lambda line: print(line, flush=True))
    finally:
        over.set()
        shown.join()


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
    entries = LogReader(Home(folder).events, records_in(events)).new()
    ends = [entry.record for entry in entries if isinstance(entry.record, events.ActorEnded)]
    return sorted(end.actor for end in ends if "SIGKILL" in end.how)


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
