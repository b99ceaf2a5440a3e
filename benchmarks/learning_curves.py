"""How well each exchange method learns for the bytes it sends.

Four clients, in one process, train our GPT on the source of Python's standard library; files held
out are scored. Every method sees the same tokens in the same order from the same first weights, and
the same shape of learning rate: warm-up, then a cosine to zero. Its height is tuned by one rule for
all: from a first guess, double or halve until both neighbours are worse (first seed); then the best
of that and those halfway to either (mean of three). Every payload goes through the method's
real wire format, and all clients must end with the same bits.

    python benchmarks/learning_curves.py              # continues where it was stopped
    python benchmarks/learning_curves.py --quick      # a few minutes: one seed, no tuning

Runs are lines of out/learning/runs.jsonl; the figures and the plot are made from them.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import random
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import torch

import results
from folkmoot.core.data_config import DataConfig, TokenFiles
from folkmoot.core.method_config import (
    DenseConfig,
    DiLoCoConfig,
    DistroConfig,
    MethodConfig,
    SparseLoCoConfig,
)
from folkmoot.core.model_config import GptConfig
from folkmoot.core.schedule import Cosine
from folkmoot.learning import methods
from folkmoot.learning.data import Samples, open_data
from folkmoot.learning.data.prepare import prepare
from folkmoot.learning.evaluate import Evaluation
from folkmoot.learning.gradients import loss_and_gradients
from folkmoot.learning.models import build
from learning_report import report

CLIENTS = 4
LENGTH = 128
BATCH = 8
"""Sequences per client and step of the baseline: 4,096 tokens a step in all."""
MODEL = GptConfig(layers=2, heads=2, width=64, context=LENGTH)
HELD_OUT = 256
POINTS = 6
TUNING_SEEDS = 3
STEPS = 144
SETTINGS = {
    "parameters_millions": 0.12,
    "steps": STEPS,
    "clients": CLIENTS,
    "tokens_a_step": CLIENTS * BATCH * LENGTH,
}
"""What the figures hold for, as the pages say it."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    method: MethodConfig
    lr: float
    """First guess; the others are found by doubling and halving."""
    micro: int = BATCH
    """Sequences per local step."""
    missing: float = 0.0
    lr_of: str = ""
    """The first guess is the learning rate tuned for this row."""


LOCAL = {"local_steps": 16, "weight_decay": 0.1}
SPARSE = SparseLoCoConfig(**LOCAL, k=1)


def distro(name: str, lr: float = 6e-3, **settings: Any) -> Row:
    """A row of DisTrO; what is not said is the default, without delay."""
    row = {key: settings.pop(key) for key in ("lr_of", "missing") if key in settings}
    method = DistroConfig(**{"weight_decay": 0.1, "delay": 0, **settings})
    return Row(name=f"DisTrO {name}", method=method, lr=lr, **row)


ROWS = [
    Row(name="AdamW", method=DenseConfig(weight_decay=0.1), lr=6e-3),
    Row(name="SparseLoCo", method=SPARSE, lr=4e-3, micro=2),
    distro("k=32", k=32),
    distro("k=8", k=8),
    distro("k=32, delay 1", k=32, delay=1, lr_of="DisTrO k=32"),
    distro("k=32, 20 % missing", k=32, missing=0.2, lr_of="DisTrO k=32"),
    distro("k=32, sign", k=32, treatment="sign", lr=8e-3),
    distro("k=8, sign", k=8, treatment="sign", lr=8e-3),
    Row(
        name="SparseLoCo, 20 % missing",
        method=SPARSE,
        lr=0,
        micro=2,
        lr_of="SparseLoCo",
        missing=0.2,
    ),
    distro("k=128", k=128),
    distro("k=32, delay 2", k=32, delay=2, lr_of="DisTrO k=32"),
    distro("k=32, 16-bit", k=32, bits=16),
    distro("k=32, adam", k=32, treatment="adam", lr=3e-3),
    Row(
        name="DiLoCo",
        method=DiLoCoConfig(**LOCAL, outer_lr=1.0, outer_momentum=0.0),
        lr=4e-3,
        micro=2,
    ),
    Row(name="SGD", method=DenseConfig(optimizer="sgd"), lr=0.3),
    Row(name="AdamW, steps a quarter", method=DenseConfig(weight_decay=0.1), lr=6e-3, micro=2),
]


class Outcome(msgspec.Struct, frozen=True):
    row: str
    lr: float
    seed: int
    steps: int
    settings: str
    """Hash of the row, the model and the task: results of other settings are not reused."""
    points: list[tuple[int, float]]
    """Tokens seen by all clients, held-out loss."""
    bytes_per_token: float
    """Sent by one client per token of the run (its own and the others')."""
    dense_ratio: float
    """How many times more the baseline sends: float32 gradients every BATCH sequences."""
    cpu_seconds: float

    @property
    def loss(self) -> float:
        return self.points[-1][1]


class Client:
    def __init__(self, number: int, row: Row, data: Samples, seed: int) -> None:
        self.number, self.row, self.data = number, row, data
        self.model = build(MODEL, seed, "cpu")
        self.method = methods.build(self.model, row.method)
        self.share = row.micro * self.method.local_steps
        """Sequences per round."""

    def train(self, step: int, lr: float) -> bytes:
        def closure(number: int) -> float:
            micro = self.row.micro
            # Clients interleave by micro-batch, so that any method has read the same sequences
            # after the same number of tokens.
            at = ((step * self.method.local_steps + number) * CLIENTS + self.number) * micro
            return loss_and_gradients(self.model, self.data.samples(range(at, at + micro)))

        return self.method.contribute(closure, step, lr).payload


class Task(msgspec.Struct, frozen=True):
    train: Path
    held_out: Path
    steps: int

    def data(self, seed: int) -> tuple[Samples, Samples]:
        def opened(path: Path, seed: int) -> Samples:
            return open_data(DataConfig(TokenFiles((str(path),)), LENGTH, wrap=True), seed)

        return opened(self.train, seed), opened(self.held_out, 0)


def run(row: Row, lr: float, seed: int, task: Task) -> Iterator[Outcome | str]:
    """Lines of progress, then the outcome."""
    train, held_out = task.data(seed)
    clients = [Client(n, row, train, seed) for n in range(CLIENTS)]
    rounds = task.steps * BATCH // clients[0].share
    schedule = Cosine(base_lr=lr, warmup_steps=max(1, rounds // 12), total_steps=rounds)
    chance = random.Random(seed)
    begun, sent, points = time.process_time(), 0, []
    in_flight: list[list[bytes]] = []
    delay = clients[0].method.delay
    for step in range(rounds + delay):
        # Half a round on: a round of a local method spans much of the schedule.
        rate = height(schedule, min(step, rounds - 1))
        if step < rounds:
            payloads = [c.train(step, rate) for c in clients]
            sent += len(payloads[0])
            in_flight.append([p for p in payloads if chance.random() >= row.missing])
        if step >= delay:
            arrived = in_flight.pop(0)
            for c in clients:
                c.method.apply(arrived, step - delay, rate)
        done = step + 1 - delay
        if done > 0 and (done * POINTS // rounds > (done - 1) * POINTS // rounds):
            tokens = done * clients[0].share * CLIENTS * LENGTH
            points.append(
                (tokens, Evaluation(clients[0].model, held_out, HELD_OUT).finish(32).loss)
            )
            yield f"{tokens / 1e6:.2f} M tokens, held-out loss {points[-1][1]:.3f}"
    same_bits(clients)
    tokens = rounds * clients[0].share * CLIENTS * LENGTH
    dense = 4 * sum(p.numel() for p in clients[0].model.parameters())
    yield Outcome(
        row=row.name,
        lr=lr,
        seed=seed,
        steps=task.steps,
        settings=settings_of(row),
        points=points,
        bytes_per_token=sent / tokens,
        dense_ratio=dense * task.steps / sent,
        cpu_seconds=time.process_time() - begun,
    )


def height(schedule: Cosine, step: int) -> float:
    return (schedule.lr(step) + schedule.lr(step + 1)) / 2


def same_bits(clients: list[Client]) -> None:
    for client in clients[1:]:
        pairs = zip(clients[0].model.parameters(), client.model.parameters(), strict=True)
        if not all(torch.equal(a, b) for a, b in pairs):
            raise AssertionError(f"client {client.number} does not hold the others' weights")


def settings_of(row: Row) -> str:
    what = [msgspec.structs.replace(row, lr=0.0), MODEL, CLIENTS, BATCH, HELD_OUT]
    return hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:12]


class Record:
    """Outcomes in a file of JSON lines, so that a stopped benchmark continues."""

    def __init__(self, path: Path, task: Task) -> None:
        self.path, self.task = path, task

    def all(self) -> list[Outcome]:
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().splitlines()
        known = {row.name: settings_of(row) for row in ROWS}
        found = [msgspec.json.decode(line, type=Outcome) for line in lines]
        return [o for o in found if known.get(o.row) == o.settings and o.steps == self.task.steps]

    def get(self, row: Row, lr: float, seed: int) -> Outcome:
        """From the file, or by running it now."""
        for known in self.all():
            if (known.row, known.seed) == (row.name, seed) and math.isclose(known.lr, lr):
                return known
        for news in run(row, lr, seed, self.task):
            if isinstance(news, str):
                print(f"  {row.name}, lr {lr:.2g}, seed {seed}: {news}", flush=True)
                continue
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(news) + b"\n")
        assert isinstance(news, Outcome)
        return news


def tuned(row: Row, record: Record) -> float:
    """The best of a learning rate whose double and half are worse, and those halfway to them.

    One seed tells a factor of two apart, but not a factor of its root."""
    best = tuned(next(r for r in ROWS if r.name == row.lr_of), record) if row.lr_of else row.lr
    for factor in (2.0, 0.5):
        moved = False
        while loss_of(row, best * factor, record) < loss_of(row, best, record):
            best, moved = best * factor, True
        if moved:
            break
    halfway = (best, best * 2**0.5, best * 0.5**0.5)
    return min(halfway, key=lambda lr: loss_of(row, lr, record, TUNING_SEEDS))


def loss_of(row: Row, lr: float, record: Record, seeds: int = 1) -> float:
    loss = fmean(record.get(row, lr, seed).loss for seed in range(seeds))
    return loss if math.isfinite(loss) else math.inf


def prepared(folder: Path) -> tuple[Path, Path]:
    """Token files of the standard library: nine tenths of its modules, and the rest held out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    left_out = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
    files = [f for f in sorted(root.rglob("*.py")) if not left_out & set(f.relative_to(root).parts)]
    parts: dict[str, list[Path]] = {"train": [], "held_out": []}
    for file in files:
        digest = hashlib.sha256(str(file.relative_to(root)).encode()).digest()
        parts["held_out" if digest[0] < 26 else "train"].append(file)
    for name, members in parts.items():
        if not (folder / f"{name}.bin").exists():
            for _ in prepare(members, "bytes", folder / f"{name}.bin"):
                pass
    return folder / "train.bin", folder / "held_out.bin"


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    train, held_out = prepared(options.out)
    task = Task(train, held_out, 32 if options.quick else options.steps)
    record = Record(options.out / "runs.jsonl", task)
    rows = [row for row in ROWS if not options.rows or row.name in options.rows]
    if options.report:
        rates = known_rates(record)
        report(record.all(), [r.name for r in rows if r.name in rates], rates, options.out)
        return
    rates = {r.name: (r.lr or rate_guess(r)) if options.quick else tuned(r, record) for r in rows}
    for seed in range(1 if options.quick else options.seeds):
        for row in rows:
            outcome = record.get(row, rates[row.name], seed)
            print(f"{row.name}, seed {seed}: {outcome.loss:.4f}", flush=True)
    methods = report(record.all(), [r.name for r in rows], rates, options.out)
    if not (options.quick or options.rows) and options.steps == STEPS:
        results.write("learning", "make bench-learning", {**SETTINGS, "methods": methods})


def known_rates(record: Record) -> dict[str, float]:
    """Of every row that has been run, the best learning rate of those tried with most seeds."""
    losses: dict[str, dict[float, list[float]]] = {}
    for o in record.all():
        if o.seed < TUNING_SEEDS:
            losses.setdefault(o.row, {}).setdefault(o.lr, []).append(o.loss)
    return {
        row: min(tried, key=lambda lr: (-len(tried[lr]), fmean(tried[lr])))
        for row, tried in losses.items()
    }


def rate_guess(row: Row) -> float:
    return next(r.lr for r in ROWS if r.name == row.lr_of)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="one seed, short, nothing tuned")
    parser.add_argument("--report", action="store_true", help="only report what was run so far")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of the baseline")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", nargs="*", help="only these rows of the table")
    parser.add_argument("--out", type=Path, default=Path("out/learning"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
