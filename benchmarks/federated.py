"""One federated round, Folkmoot against Flower, on this machine, in one run: `make bench-
federated`.

The same trivial client everywhere (w + 1, equal sample counts), FedAvg over all clients, no
evaluation, loopback. A round lasts from the moment the server begins it to the moment it begins the
next one; the first round is left out. CPU seconds cover every process of the system; RSS is the
peak of the server's own processes. Where weights go through a folder that all share, no model
crosses a network; those of benchmarks/federated_tls.py share nothing. A cell is the median of ten
rounds or more. It gets the time for them as long as it gets on: one whose next round does
not begin for `--stall` seconds, or that has used up `--limit` seconds, is stopped, and its row says
how many rounds it had finished. Results are appended to out/federated/results.jsonl, and a cell
that is there is not measured again: an interrupted run continues. `--fresh` starts over.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Collection, Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import results
import systems
from processes import Cell, available_mb, peak_rss_mb

SIZES = ((2, 1_000_000), (10, 1_000_000), (2, 10_000_000), (10, 10_000_000), (50, 10_000_000))
SHOWN = {
    "folkmoot": "Folkmoot",
    "flower-legacy": "legacy gRPC",
    "flower-ray": "Ray simulation",
    "flower-deployment": "default deployment",
}
OUT = Path("out/federated")
STALL = 120.0  # seconds without a new round, starting up included, after which a cell is stopped
PATIENCE = 60.0  # seconds a round that even the slowest system gets; a cell has that for each
SAY = 10.0  # seconds between two lines about how far a slow cell is
POLL = 0.2  # seconds; looking costs CPU that the systems should have
_cells = count()  # a cell may be measured more than once
KEEP_FREE_MB = 1500  # a cell that would push the machine into swap or the OOM killer is stopped


def main() -> None:
    args = parse()
    OUT.mkdir(parents=True, exist_ok=True)
    measured = OUT / "results.jsonl"
    if args.fresh:
        measured.unlink(missing_ok=True)
    for clients, params in args.sizes:
        for name in args.systems:
            if done(latest(measured).get((name, clients, params))):
                continue
            row = measure(name, clients, params, args)
            with measured.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(line(row), flush=True)
    rows = latest(measured)
    print(table(list(rows.values())))
    if (tuple(args.sizes), args.systems) == (SIZES, list(SHOWN)) and not args.rounds:
        results.write("federated", "make bench-federated", figures(rows))


def parse() -> argparse.Namespace:
    parser = usual_options(__doc__, list(SHOWN), systems.ALL, SIZES)
    parser.add_argument(
        "--limit", type=float, help=f"seconds for one cell (default: {PATIENCE:.0f} a round)"
    )
    parser.add_argument(
        "--stall", type=float, default=STALL, help="seconds to wait for a round (%(default)s)"
    )
    return parser.parse_args()


def usual_options(
    doc: str, default: list[str], choices: Collection[str], sizes: tuple[tuple[int, int], ...]
) -> argparse.ArgumentParser:
    """Which cells are measured, and for how long."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--systems", nargs="+", default=default, choices=choices)
    parser.add_argument("--sizes", nargs="+", default=sizes, type=size, metavar="NxPARAMS")
    parser.add_argument(
        "--rounds", type=int, help="rounds to measure (default: by system and size)"
    )
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    return parser


def size(text: str) -> tuple[int, int]:
    clients, params = text.lower().split("x")
    return int(clients), int(float(params.replace("m", "e6")))


def key(row: dict) -> tuple[str, int, int]:
    return row["system"], row["clients"], row["params"]


def latest(path: Path) -> dict[tuple[str, int, int], dict]:
    """The last row of each cell."""
    return {key(row): row for row in read(path)}


def done(row: dict | None) -> bool:
    """Whether a cell need not be measured again."""
    return row is not None and ("seconds" in row or row["hopeless"])


def read(path: Path) -> Iterator[dict]:
    if path.exists():
        yield from (json.loads(text) for text in path.read_text().splitlines())


def rounds_for(name: str, clients: int, params: int) -> int:
    """Ten measured rounds, more where they are short."""
    return 30 if clients * params <= 10_000_000 and name != "flower-deployment" else 10


def measure(name: str, clients: int, params: int, args: argparse.Namespace) -> dict:
    """Run one cell in processes of its own and reduce its log of rounds to one row."""
    rounds = (args.rounds or rounds_for(name, clients, params)) + 1
    limit = args.limit or PATIENCE * rounds
    label = f"{name}-{clients}x{params}-{os.getpid()}-{next(_cells)}"
    home = OUT / label
    home.mkdir(parents=True)
    job = systems.Job(label, home.resolve(), clients, params, rounds)
    cell, server = Cell(systems.CELL, label), Cell(systems.SERVER, label)
    row = {"system": name, "clients": clients, "params": params, "load1": os.getloadavg()[0]}
    try:
        with systems.ALL[name](job) as started:
            beside = Cell(systems.BESIDE, label)
            return row | watch(job, cell, server, beside, started, limit, args.stall)
    except systems.CellFailed as failure:
        hopeless = isinstance(failure, systems.CellHopeless)
        return row | {"error": str(failure), "hopeless": hopeless}
    finally:
        cell.kill()
        job.clean()


def watch(
    job: systems.Job,
    cell: Cell,
    server: Cell,
    beside: Cell,
    started: systems.Started,
    limit: float,
    stall: float,
) -> dict:
    """Follow the log of rounds; sample CPU when a round has begun, memory all along."""
    samples, peak, lowest = [(0, 0.0, 0.0)], {}, available_mb()
    clock = Clock(job, limit, stall)
    while True:
        starts = list(read(job.round_log))
        if len(starts) >= max(2, samples[-1][0] + 1):
            samples.append((len(starts), cell.cpu(), beside.cpu()))
        for pid in server.pids() or {start["pid"] for start in starts}:
            peak[pid] = max(peak.get(pid, 0.0), peak_rss_mb(pid))
        used = sum(peak.values())
        if len(starts) > job.rounds:
            return reduce(starts, samples[1:], used)
        if clock.is_over(len(starts)):
            if len(starts) < 3:
                after = "the first was left out, and " if len(starts) == 2 else ""
                raise systems.CellHopeless(f"{after}no round finished in {clock.spent():.0f} s")
            return reduce(starts, samples[1:], used)
        lowest = min(lowest, available_mb())
        if lowest < KEEP_FREE_MB:
            raise systems.CellHopeless(f"out of memory on this machine (server had {used:.0f} MB)")
        started.check()
        time.sleep(POLL)


class Clock:
    """How long a cell may still run; says now and then how far it is."""

    def __init__(self, job: systems.Job, limit: float, stall: float) -> None:
        self._job, self._limit, self._stall = job, limit, stall
        self._start = self._moved = self._said = time.monotonic()
        self._starts = 0

    def spent(self) -> float:
        return time.monotonic() - self._start

    def is_over(self, starts: int) -> bool:
        now = time.monotonic()
        if starts > self._starts:
            self._starts, self._moved = starts, now
        if now - self._said >= SAY:
            self._said = now
            rounds = f"{max(0, starts - 1)} of {self._job.rounds} rounds"
            print(f"    {self._job.label}: {rounds} in {self.spent():.0f} s", flush=True)
        return now - self._start > self._limit or now - self._moved > self._stall


def reduce(starts: list[dict], samples: list[tuple[int, float, float]], rss: float) -> dict:
    times = [start["t"] for start in starts]
    seconds = [b - a for a, b in pairwise(times[1:])]
    # When the last round is over, processes leave and take their CPU time with them.
    first, last = samples[0], samples[-2] if len(samples) > 2 else samples[-1]
    return {
        "rounds": len(seconds),
        "seconds": statistics.median(seconds),
        "each": seconds,
        "fastest": min(seconds),
        "slowest": max(seconds),
        "cpu": (last[1] - first[1]) / max(1, last[0] - first[0]),
        "beside": (last[2] - first[2]) / max(1, last[0] - first[0]),
        "rss": rss,
    }


def line(row: dict) -> str:
    head = f"{row['system']:<18} {row['clients']:>3} x {row['params'] // 1_000_000:>2}M"
    if "error" in row:
        return f"{head}  {row['error']}"
    spread = f"{row['fastest']:.3f}-{row['slowest']:.3f}"
    return (
        f"{head}  {row['seconds']:>8.3f} s  ({spread:>13}, {row['rounds']:>2} rounds)"
        f"  {row['cpu']:>7.2f} CPU s  {row['rss']:>6.0f} MB  load {row['load1']:.1f}"
    )


def table(rows: list[dict]) -> str:
    """Every cell, and how many times faster Folkmoot was than each peer."""
    lines = ["", "median seconds per round, all processes' CPU seconds per round, server peak RSS"]
    ours = {key(row)[1:]: row for row in rows if row["system"] == "folkmoot" and "seconds" in row}
    for row in sorted(rows, key=lambda row: (row["params"], row["clients"], key(row))):
        mine = ours.get(key(row)[1:])
        ratio = ""
        if mine and "seconds" in row and row is not mine:
            ratio = f"  Folkmoot {row['seconds'] / mine['seconds']:.1f}x faster"
        lines.append(line(row) + ratio)
    return "\n".join(lines)


def figures(rows: dict[tuple[str, int, int], dict]) -> dict[str, Any]:
    """What the pages show: a row for each size, and the least advantage over all sizes."""
    table = {}
    for clients, params in SIZES:
        cells = {name: rows[name, clients, params] for name in SHOWN}
        ours, flower = cells["folkmoot"], {n: c for n, c in cells.items() if n.startswith("flower")}
        times = {
            name: cell["seconds"] / ours["seconds"]
            for name, cell in flower.items()
            if "seconds" in cell
        }
        theirs = [round(cell["rss"]) for cell in flower.values() if "rss" in cell]
        table[f"{clients} × {params // 1_000_000} M"] = {
            **{SHOWN[name]: shown(cell) for name, cell in cells.items()},
            "beside the fastest, times": results.significant(min(times.values()), 2),
            "beside the default, times": round(times.get("flower-deployment", 0)) or "-",
            "server, MB": round(ours["rss"]),
            "Flower's, MB": f"{min(theirs)}–{max(theirs)}",
        }
    known = [row["beside the default, times"] for row in table.values()]
    return {
        "seconds_a_round": table,
        "least_beside_the_fastest": min(r["beside the fastest, times"] for r in table.values()),
        "least_beside_the_default": min(times for times in known if times != "-"),
        "most_server_mb": max(row["server, MB"] for row in table.values()),
    }


def shown(cell: dict) -> float | str:
    return results.significant(cell["seconds"]) if "seconds" in cell else cell["error"]


if __name__ == "__main__":
    main()
