"""Federated rounds across machines, beside Flower: `make bench-federated-tls` (ten minutes).

As benchmarks/federated.py, but nothing is shared: every byte goes through TLS over TCP. Folkmoot
carries its weights itself, or has them in a SeaweedFS of this machine that speaks S3; Flower is its
legacy gRPC with TLS. The systems take turns, twice at each size, and a cell is the median of all
its rounds but the first of each turn; CPU is that of all processes of the system, SeaweedFS left
out. A turn that was measured is kept in out/federated/tls.jsonl: an interrupted run continues.
"""

import argparse
import json
import statistics
import sys
from typing import Any

import results
from federated import OUT, STALL, line, measure, read, size

SIZES = ((2, 1_000_000), (10, 1_000_000), (2, 10_000_000), (10, 10_000_000))
OURS, S3, FLOWER = "folkmoot-tls", "folkmoot-s3", "flower-legacy-tls"
TURNS = 2
#: The goals: times as fast, share of its CPU, megabytes of the server.
FASTER, SHARE, SERVER = 2.0, 0.5, 200


def main() -> None:
    args = parse(sys.argv[1:])
    OUT.mkdir(parents=True, exist_ok=True)
    kept = OUT / "tls.jsonl"
    if args.fresh:
        kept.unlink(missing_ok=True)
    done = {(row["turn"], *cell(row)) for row in read(kept)}
    for clients, params in args.sizes:
        for turn in range(TURNS):
            for name in args.systems:
                if (turn, name, clients, params) not in done:
                    row = measure(name, clients, params, limits(args, params)) | {"turn": turn}
                    with kept.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    print(line(row), flush=True)
    table = figures(list(read(kept)), args.sizes)
    print(json.dumps(table, indent=2, ensure_ascii=False))
    if (tuple(args.sizes), args.systems) == (SIZES, [OURS, FLOWER, S3]) and not args.rounds:
        results.write("federated_tls", "make bench-federated-tls", table)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    systems = [OURS, FLOWER, S3]
    parser.add_argument("--systems", nargs="+", default=systems, choices=systems)
    parser.add_argument("--sizes", nargs="+", default=SIZES, type=size, metavar="NxPARAMS")
    parser.add_argument("--rounds", type=int, help="rounds of a turn (default: 20 of 1 M, else 5)")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    return parser.parse_args(argv)


def limits(args: argparse.Namespace, params: int) -> argparse.Namespace:
    rounds = args.rounds or (20 if params <= 1_000_000 else 5)
    return argparse.Namespace(rounds=rounds, limit=STALL, stall=STALL / 2)


def cell(row: dict) -> tuple[str, int, int]:
    return row["system"], row["clients"], row["params"]


def figures(rows: list[dict], sizes: Any) -> dict[str, Any]:
    """A row for each size that was measured, and the worst of all for each goal."""
    table = {}
    for clients, params in sizes:
        found = {
            name: merged([row for row in rows if cell(row) == (name, clients, params)])
            for name in (OURS, FLOWER, S3)
        }
        if found[OURS] and found[FLOWER]:
            table[f"{clients} × {params // 1_000_000} M"] = compared(found)
    return {
        "over_tls": table,
        "least_times": min(row["times as fast"] for row in table.values()),
        "largest_share": max(row["share of its CPU"] for row in table.values()),
        "most_server_mb": max(row["server, MB"] for row in table.values()),
        "goals": {name: results.GOALS[met(row)] for name, row in table.items()},
    }


def merged(rows: list[dict]) -> dict[str, float]:
    """The turns of a cell as one."""
    rows = [row for row in rows if "seconds" in row]
    if not rows:
        return {}
    return {
        "seconds": statistics.median([each for row in rows for each in row["each"]]),
        "cpu": statistics.mean([row["cpu"] for row in rows]),
        "rss": max(row["rss"] for row in rows),
    }


def compared(found: dict[str, dict[str, float]]) -> dict[str, Any]:
    ours, theirs, s3 = found[OURS], found[FLOWER], found[S3]

    def two(value: float) -> float:
        return results.significant(value, 2)

    return {
        "Folkmoot, s": results.significant(ours["seconds"]),
        "Flower, s": results.significant(theirs["seconds"]),
        "times as fast": two(theirs["seconds"] / ours["seconds"]),
        "CPU, s": two(ours["cpu"]),
        "Flower's CPU, s": two(theirs["cpu"]),
        "share of its CPU": two(ours["cpu"] / theirs["cpu"]),
        "server, MB": round(ours["rss"]),
        "Flower's, MB": round(theirs["rss"]),
        "Folkmoot with S3, s": results.significant(s3["seconds"]) if s3 else "-",
        "times as fast with S3": two(theirs["seconds"] / s3["seconds"]) if s3 else "-",
    }


def met(row: dict[str, Any]) -> bool:
    fast, lean = row["times as fast"] >= FASTER, row["share of its CPU"] <= SHARE
    return fast and lean and row["server, MB"] <= SERVER


if __name__ == "__main__":
    main()
