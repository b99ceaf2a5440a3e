"""The demo's run on Solana beside the same on a server: what it learns, and what deaths cost.

    python benchmarks/run_solana_demo.py [--steps 30]

The run of `run_store_demo.py` (three clients, a small GPT, DisTrO, the library's own source) on
a server and on a local network of Solana with the program on it, one after the other; then both at
the same time, hurt: a client is killed and another joins late, and once more.

Goals: the same held-out loss within 2 %, and hurt or not every step is learnt, with one model at
the end. A round waits for transactions to be confirmed, so there is no goal for its tempo.
"""

import argparse
import tempfile
from pathlib import Path

import results
from run_store_demo import SERVER, SOLANA, learning_goals, measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        table = measure(asked.steps, 1, Path(name), (SERVER, SOLANA))
    for goal, met in learning_goals(table):
        print(f"{goal}: {results.GOALS[met]}")
    if asked == parser.parse_args([]):
        results.write("run_solana_demo", "make bench-solana", table)


if __name__ == "__main__":
    main()
