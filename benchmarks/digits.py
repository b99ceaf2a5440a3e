"""What examples/digits.py reaches, for the pages: python benchmarks/digits.py, ten seconds."""

import sys
import tempfile
from pathlib import Path

import results

sys.path.insert(0, str(results.HERE.parent))
from examples import digits

ROUNDS, EPOCHS = 30, 2


def main() -> None:
    pooled = digits.elsewhere(digits.data()[0], ROUNDS, EPOCHS)
    shards = [digits.shard(number) for number in range(digits.PARTICIPANTS)]
    alone = [digits.elsewhere(shard, ROUNDS, EPOCHS) for shard in shards]
    with tempfile.TemporaryDirectory() as folder:
        federated = digits.federate(Path(folder), ROUNDS, EPOCHS)
    last = {
        "participants": digits.PARTICIPANTS,
        "rounds": ROUNDS,
        "federated": percent(federated),
        "pooled": percent(pooled),
        "best_alone": max(map(percent, alone)),
    }
    print(last)
    results.write("digits", "python benchmarks/digits.py", last)


def percent(curve: list[float]) -> float:
    return round(100 * curve[-1], 1)


if __name__ == "__main__":
    main()
