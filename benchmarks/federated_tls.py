"""Federated rounds across machines, beside Flower: `make bench-federated-tls` (ten minutes).

As benchmarks/federated.py, but nothing is shared: every byte goes through TLS over TCP. Folkmoot
carries its weights itself, or has them in an S3 server of this machine (benchmarks/s3.py), now and
as it was at `systems.BEFORE`; Flower is its legacy gRPC with TLS. The systems take turns, twice at
each size, and a cell is the median of all its rounds but the first of each turn; CPU is that of all
processes of the system, and that of the S3 server beside it. Folkmoot alone runs once with fifty
participants, for its server's memory. A turn that was measured is kept in out/federated/tls.jsonl:
an interrupted run continues.
"""

import argparse
import json
import statistics
from typing import Any

import results
from federated import OUT, STALL, key, line, measure, read, usual_options

SIZES = ((2, 1_000_000), (10, 1_000_000), (2, 10_000_000), (10, 10_000_000))
MANY = (50, 1_000_000)
OURS, FLOWER = "folkmoot-tls", "flower-legacy-tls"
S3, S3_BEFORE = "folkmoot-s3", "folkmoot-s3-before"
SYSTEMS = [OURS, FLOWER, S3_BEFORE, S3]
TURNS = 2
#: The goals: times as fast, share of its CPU, megabytes of the server, times as fast with S3.
FASTER, SHARE, SERVER, FASTER_S3 = 2.0, 0.5, 200, 1.5


def main() -> None:
    args = usual_options(__doc__, SYSTEMS, SYSTEMS, SIZES).parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    kept = OUT / "tls.jsonl"
    if args.fresh:
        kept.unlink(missing_ok=True)
    whole = (tuple(args.sizes), args.systems) == (SIZES, SYSTEMS) and not args.rounds
    turns = [
        (turn, name, *size)
        for size in args.sizes
        for turn in range(TURNS)
        for name in args.systems
        if turn == 0 or not takes_minutes(name, *size)
    ]
    turns += [(0, OURS, *MANY)] if whole else []
    done = {(row["turn"], *key(row)) for row in read(kept)}
    for turn, name, clients, params in turns:
        if (turn, name, clients, params) not in done:
            row = measure(name, clients, params, limits(args, params)) | {"turn": turn}
            with kept.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(line(row), flush=True)
    table = figures(list(read(kept)), args.sizes)
    print(json.dumps(table, indent=2, ensure_ascii=False))
    if whole:
        results.write("federated_tls", "make bench-federated-tls", table)


def limits(args: argparse.Namespace, params: int) -> argparse.Namespace:
    rounds = args.rounds or (40 if params <= 1_000_000 else 12)
    return argparse.Namespace(rounds=rounds, limit=STALL, stall=STALL / 2)


def takes_minutes(name: str, clients: int, params: int) -> bool:
    """Through S3 a round of ten models of 40 MB takes long."""
    return name in (S3, S3_BEFORE) and clients * params >= 100_000_000


def figures(rows: list[dict], sizes: Any) -> dict[str, Any]:
    """A row for each size that was measured, and the worst of all for each goal."""

    def found(name: str, size: tuple[int, int]) -> dict[str, float]:
        return merged([row for row in rows if key(row) == (name, *size)])

    titles = {size: f"{size[0]} × {size[1] // 1_000_000} M" for size in sizes}
    pairs = {titles[size]: (found(OURS, size), found(FLOWER, size)) for size in sizes}
    stored = {titles[size]: (found(S3, size), found(S3_BEFORE, size)) for size in sizes}
    table = {title: compared(*pair) for title, pair in pairs.items() if all(pair)}
    with_s3 = {title: beside_before(*pair) for title, pair in stored.items() if all(pair)}
    many = found(OURS, MANY)
    return {
        "over_tls": table,
        "least_times": min((row["times as fast"] for row in table.values()), default=None),
        "largest_share": max((row["share of its CPU"] for row in table.values()), default=None),
        "most_server_mb": max((row["server, MB"] for row in table.values()), default=None),
        "server_mb_at_50": round(many["rss"]) if many else None,
        "goals": {name: results.GOALS[met(row)] for name, row in table.items()},
        "with_s3": with_s3,
        "least_times_s3": min((row["times as fast"] for row in with_s3.values()), default=None),
        "goals_s3": {
            name: results.GOALS[row["times as fast"] >= FASTER_S3] for name, row in with_s3.items()
        },
    }


def merged(rows: list[dict]) -> dict[str, float]:
    """The turns of a cell as one."""
    rows = [row for row in rows if "seconds" in row]
    if not rows:
        return {}
    return {
        "seconds": statistics.median([each for row in rows for each in row["each"]]),
        "cpu": statistics.mean([row["cpu"] for row in rows]),
        "beside": statistics.mean([row["beside"] for row in rows]),
        "rss": max(row["rss"] for row in rows),
    }


def compared(ours: dict[str, float], theirs: dict[str, float]) -> dict[str, Any]:
    return {
        "Folkmoot, s": results.significant(ours["seconds"]),
        "Flower, s": results.significant(theirs["seconds"]),
        "times as fast": results.significant(theirs["seconds"] / ours["seconds"], 2),
        "CPU, s": results.significant(ours["cpu"], 2),
        "Flower's CPU, s": results.significant(theirs["cpu"], 2),
        "share of its CPU": results.significant(ours["cpu"] / theirs["cpu"], 2),
        "server, MB": round(ours["rss"]),
        "Flower's, MB": round(theirs["rss"]),
    }


def beside_before(now: dict[str, float], before: dict[str, float]) -> dict[str, Any]:
    return {
        "with S3, s": results.significant(now["seconds"]),
        "before, s": results.significant(before["seconds"]),
        "times as fast": results.significant(before["seconds"] / now["seconds"], 2),
        "CPU, s": results.significant(now["cpu"], 2),
        "CPU before, s": results.significant(before["cpu"], 2),
        "S3 server's CPU, s": results.significant(now["beside"], 2),
        "server, MB": round(now["rss"]),
    }


def met(row: dict[str, Any]) -> bool:
    fast, lean = row["times as fast"] >= FASTER, row["share of its CPU"] <= SHARE
    return fast and lean and row["server, MB"] <= SERVER


if __name__ == "__main__":
    main()
