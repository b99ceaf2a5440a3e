"""What liars do to a run: each attack, with only bounded influence and with screening and audits.

Clients in one process train a small GPT on the source of Python's standard library with the real
method (DisTrO) and its real wire format; the honest ones witness every round with the real rules
(`screening.py`, `audits.py`, a quorum, `standing.py`). Liars also lie as witnesses: they attest
each other, screen nobody, and pass each other as auditors. Every run is compared with one of its
honest clients alone, which train as many samples in a round, on the same data; every seed is other
data.

    python benchmarks/run_liars.py              # hours; continues where it was stopped
    python benchmarks/run_liars.py --sizes "1 of 4" --seeds 1    # some of it
    python benchmarks/run_liars.py --honest 2000    # honest clients of all kinds: nobody is ejected
    python benchmarks/run_liars.py --honest 2000 --audited 100    # of their results, else 5
"""

import argparse
from pathlib import Path

import torch

import results
from learning_curves import prepared
from liars_attacks import ATTACKS
from liars_honest import all_honest
from liars_record import SEEDS, SIZES, Record, figures

HONEST, HONEST_AUDITED = 2000, 5
"""Rounds of honest clients, and per cent of their results that are audited, on the pages."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--honest", type=int, default=0, help="only honest clients, so many rounds")
    parser.add_argument("--audited", type=int, default=HONEST_AUDITED, help="per cent, of those")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument("--attacks", nargs="*", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="of each, at most")
    parser.add_argument("--out", type=Path, default=Path("out/learning"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    files = prepared(options.out)
    if options.honest:
        honest = all_honest(files, options.honest, options.audited)
        print(honest)
        if (options.honest, options.audited) == (HONEST, HONEST_AUDITED):
            results.write("run_honest", "make bench-liars", honest)
        return
    record = Record(options.out / "liars.jsonl", files)
    record.play_all(options.sizes, options.attacks, options.seeds)
    results.write("run_liars", "make bench-liars", figures(record))


if __name__ == "__main__":
    main()
