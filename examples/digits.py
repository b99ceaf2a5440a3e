"""Participants with different shards of handwritten digits learn one classifier together.

Each sees mostly two or three of the ten digits, so alone it is a poor judge of the others. The
federation never sees an image: only weights travel. The plot compares the federation, round by
round, with a model trained on all data in one place, and with each participant alone.

    python examples/digits.py --out out/digits                # all of it, and a plot
    folkmoot federate up examples/digits.toml -p examples.digits:Digits -n 5   # as processes
    folkmoot federate simulate examples/digits.toml -p examples.digits:Digits -n 1000 --rounds 10
"""

import argparse
import asyncio
import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from folkmoot.core.federation import Rules
from folkmoot.federated import Participant, Policy, Settings, take_part
from folkmoot.federated.coordinator.config import BucketConfig, Federation, ServerConfig, rooted
from folkmoot.federated.coordinator.server import serving
from folkmoot.federated.model_file.reader import ModelFile

PARTICIPANTS = 5
HIDDEN = 48
ParticipantBucket = dict[str, np.ndarray]
Data = tuple[np.ndarray, np.ndarray]


@functools.cache
def data() -> tuple[Data, Data]:
    """Training and test halves of scikit-learn's 1,797 digits."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    x_train, x_test, y_train, y_test = train_test_split(
        x, y, test_size=0.3, random_state=0, stratify=y
    )
    return (x_train, y_train), (x_test, y_test)


def shard(number: int, of: int = PARTICIPANTS) -> Data:
    """What one participant has: nine tenths of its own digits, and a tenth of the others."""
    (x, y), _ = data()
    if of > 10:  # of many, each has twenty images, which others may have as well
        own = np.random.default_rng(number)
        liked = np.where((y % 5) == number % 5, 9.0, 1.0)
        chosen = own.choice(len(y), 20, replace=False, p=liked / liked.sum())
        return x[chosen], y[chosen]
    generator = np.random.default_rng(7)
    owner = np.where(generator.random(len(y)) < 0.9, y % of, generator.integers(0, of, len(y)))
    return x[owner == number], y[owner == number]


def initial() -> ParticipantBucket:
    generator = np.random.default_rng(1)
    return {
        "hidden.weight": generator.normal(0, 0.18, (64, HIDDEN)).astype(np.float32),
        "hidden.bias": np.zeros(HIDDEN, np.float32),
        "out.weight": generator.normal(0, 0.2, (HIDDEN, 10)).astype(np.float32),
        "out.bias": np.zeros(10, np.float32),
    }


def forward(weights: ParticipantBucket, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(x @ weights["hidden.weight"] + weights["hidden.bias"], 0)
    scores = hidden @ weights["out.weight"] + weights["out.bias"]
    scores = np.exp(scores - scores.max(1, keepdims=True))
    return hidden, scores / scores.sum(1, keepdims=True)


def train(
    weights: ParticipantBucket, shard: Data, epochs: int, seed: int, rate: float = 0.15
) -> tuple[ParticipantBucket, list[float]]:
    """Mini-batch gradient descent on the cross-entropy; the loss of each epoch."""
    x, y = shard
    weights = {name: np.array(array) for name, array in weights.items()}
    generator, losses = np.random.default_rng(seed), []
    for _ in range(epochs):
        total = 0.0
        for batch in np.array_split(generator.permutation(len(y)), max(len(y) // 16, 1)):
            hidden, p = forward(weights, x[batch])
            total -= float(np.log(p[np.arange(len(batch)), y[batch]] + 1e-9).sum())
            p[np.arange(len(batch)), y[batch]] -= 1
            p /= len(batch)
            back = (p @ weights["out.weight"].T) * (hidden > 0)
            weights["out.weight"] -= rate * hidden.T @ p
            weights["out.bias"] -= rate * p.sum(0)
            weights["hidden.weight"] -= rate * x[batch].T @ back
            weights["hidden.bias"] -= rate * back.sum(0)
        losses.append(total / len(y))
    return weights, losses


def accuracy(weights: ParticipantBucket, test: Data) -> float:
    return float((forward(weights, test[0])[1].argmax(1) == test[1]).mean())


class Digits(Participant):
    """One owner of images; its number comes from the environment when none is given."""

    def __init__(self, number: int | None = None) -> None:
        self.number = int(os.environ.get("FOLKMOOT_PARTICIPANT", 0)) if number is None else number
        self.shard = shard(self.number, int(os.environ.get("FOLKMOOT_PARTICIPANTS", PARTICIPANTS)))
        self.loss = float("nan")

    def init_weights(self) -> ParticipantBucket:
        return initial()

    def train_round(self, weights: Any, epochs: int, epoch_base: int) -> tuple:
        new, losses = train(weights, self.shard, epochs, seed=100 * epoch_base + self.number)
        self.loss = losses[-1]
        return new, len(self.shard[1]), {"loss": losses}

    def metrics(self) -> dict[str, float]:
        return {"loss": self.loss}


def federate(folder: Path, rounds: int, epochs: int) -> list[float]:
    """Run the federation over real gRPC; the accuracy of each round's global model."""
    rules = Rules(rounds=rounds + 1, epochs=epochs, min_participants=PARTICIPANTS)
    config = Federation(
        run_id="digits",
        rounds=rules,
        server=ServerConfig(port=0, state="federation"),
        bucket=BucketConfig(keep_rounds=0),
    )

    async def run() -> None:
        async with serving(rooted(config, folder)) as server:
            # All of them are ours here; elsewhere each owner says what it agrees to.
            agreed = Policy(buckets=("all",))
            settings = Settings(address=server.address, run_id="digits", policy=agreed)
            await asyncio.gather(*(take_part(Digits(i), settings) for i in range(PARTICIPANTS)))

    asyncio.run(run())
    _, test = data()
    models = [folder / f"federation/bucket/{r}/global" for r in range(1, rounds + 2)]
    return [accuracy(_read(path), test) for path in models]


def _read(path: Path) -> ParticipantBucket:
    with ModelFile(path) as model:
        return model.arrays()


def elsewhere(shard: Data, rounds: int, epochs: int) -> list[float]:
    """The same training in one place, with no federation."""
    _, test = data()
    weights, curve = initial(), [accuracy(initial(), test)]
    for round_ in range(rounds):
        weights, _ = train(weights, shard, epochs, seed=round_)
        curve.append(accuracy(weights, test))
    return curve


def plot(path: Path, federated: list[float], pooled: list[float], alone: list[list[float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for number, curve in enumerate(alone):
        label = "each participant alone" if number == 0 else None
        axes.plot(curve, color="#bbbbbb", linewidth=1, label=label)
    axes.plot(pooled, color="#1f77b4", linestyle="--", label=f"pooled data: {pooled[-1]:.1%}")
    axes.plot(federated, color="#d62728", linewidth=2, label=f"federated: {federated[-1]:.1%}")
    axes.set(xlabel="round", ylabel="accuracy on unseen digits", ylim=(0, 1))
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/digits"))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    if (arguments.out / "federation").exists():
        parser.error(f"{arguments.out}/federation is there already: remove it, or choose --out")
    arguments.out.mkdir(parents=True, exist_ok=True)
    rounds, epochs = arguments.rounds, arguments.epochs
    pooled = elsewhere(data()[0], rounds, epochs)
    alone = [elsewhere(shard(i), rounds, epochs) for i in range(PARTICIPANTS)]
    federated = federate(arguments.out, rounds, epochs)
    plot(arguments.out / "accuracy.png", federated, pooled, alone)
    best_alone = max(curve[-1] for curve in alone)
    print(f"federated {federated[-1]:.3f}, pooled {pooled[-1]:.3f}, best alone {best_alone:.3f}")
    print(f"plot: {arguments.out / 'accuracy.png'}")


if __name__ == "__main__":
    main()
