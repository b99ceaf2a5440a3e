"""What liars do to a run: each attack, with only bounded influence and with screening as well.

Clients in one process train a small GPT on the source of Python's standard library with the real
method (DisTrO) and its real wire format; the honest ones witness every round with the real rules
(`screening.py`, a quorum, `standing.py`). Liars also lie as witnesses: they attest each other and
screen nobody. Every run is compared with one of its honest clients alone, which train as many
samples in a round.

    python benchmarks/run_liars.py              # some minutes; continues where it was stopped
    python benchmarks/run_liars.py --quick      # one liar of four only
    python benchmarks/run_liars.py --honest 2000    # honest clients of all kinds: nobody is ejected
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
import numpy as np
import torch

import results
from folkmoot.core.coordinator import Phase
from folkmoot.core.coordinator.assignment import Span
from folkmoot.core.coordinator.client.screening import Arrival, Screening
from folkmoot.core.coordinator.config import CoordinatorConfig, Run
from folkmoot.core.coordinator.standing import weigh
from folkmoot.core.coordinator.state import Client as Place
from folkmoot.core.coordinator.state import Coordinator, Epoch
from folkmoot.core.data_config import DataConfig, TokenFiles
from folkmoot.core.method_config import DistroConfig
from folkmoot.core.model_config import GptConfig
from folkmoot.core.quorum import witness_quorum
from folkmoot.core.schedule import Constant, Cosine, Schedule
from folkmoot.learning.data import Samples, open_data
from folkmoot.learning.evaluate import Evaluation
from folkmoot.learning.gradients import loss_and_gradients
from folkmoot.learning.methods.distro import DistroMethod, wire
from folkmoot.learning.models import build
from learning_curves import prepared

LENGTH, BATCH, ROUNDS = 64, 24, 60
"""Samples of a round are shared out among those who train."""
RATE = Cosine(base_lr=0.012, warmup_steps=5, total_steps=ROUNDS)
MODEL = GptConfig(layers=1, heads=2, width=64, context=LENGTH)
SIZES = {"1 of 4": (4, 1), "2 of 8": (8, 2), "3 of 10": (10, 3)}
ATTACKS = {
    "opposite": 1,
    "random": 1,
    "random × 16": 16,
    "loud × 100": 16,
    "constant": 1,
    "copy of another's": 1,
    "own old one": 1,
    "a tenth of its share": 1,
    "other data": 1,
    "delayed by a round": 1,
}
"""And the bits of an amplitude with which each is tried: with one bit nobody can be loud."""


class Client:
    """One client; `share` is how many samples of a round it trains."""

    def __init__(
        self, name: int, data: Samples, bits: int, share: int, rate: Schedule = RATE
    ) -> None:
        self.name, self.data, self.share, self.rate = bytes([name]) * 32, data, share, rate
        self.model = build(MODEL, 0, "cpu")
        self.method = DistroMethod(self.model, DistroConfig(bits=bits, delay=1))
        self.screening, self.made = Screening(), list[bytes]()

    def train(self, step: int, first: int, count: int | None = None) -> bytes:
        ids = range(first, first + (self.share if count is None else count))

        def closure(_: int) -> float:
            return loss_and_gradients(self.model, self.data.samples(ids))

        self.made.append(self.method.contribute(closure, step, self.rate.lr(step)).payload)
        return self.made[-1]

    def join_anew(self, other: Client) -> None:
        """As after a crash: the model from a peer, nothing of its own."""
        state = other.method.state_dict()
        shared = {name: x for name, x in state.items() if name.startswith("shared.")}
        self.model.load_state_dict(other.model.state_dict())
        self.method.load_state_dict(shared)
        self.screening = Screening()


def lie(attack: str, liar: Client, step: int, first: int, honest: dict[bytes, bytes]) -> bytes:
    """What a liar sends; colluders draw the same numbers and so say nearly the same."""
    plan = liar.method.plan
    match attack:
        case "copy of another's":
            return honest[min(honest)]
        case "a tenth of its share":
            return liar.train(step, first, 1)
        case "other data":
            return liar.train(step, first + 10_000_000)
        case "delayed by a round":
            liar.train(step, first)
            return liar.made[max(step - 1, 0)]
        case "own old one" if step >= 5:
            return liar.made[step % 5]
    index, value = wire.unpack(plan, liar.train(step, first))
    match attack:
        case "opposite":
            return wire.pack(plan, index, -value)
        case "loud × 100":
            return wire.pack(plan, index, value * np.float32(100))
        case "random" | "random × 16" | "constant":
            draw = np.random.default_rng(0 if attack == "constant" else (step, liar.name[0]))
            size = np.abs(value).mean() * (16 if attack == "random × 16" else 1)
            places = [
                np.sort(np.argsort(draw.random((g.count, g.size)), axis=1)[:, : g.k]).ravel()
                for g in plan.groups
            ]
            signs = draw.choice([-size, size], len(value)).astype(np.float32)
            return wire.pack(plan, np.concatenate(places).astype(np.int32), signs)
    return liar.made[-1]


class Table:
    """The run's authority, as far as it weighs results: places, marks, ejections."""

    def __init__(self, clients: list[Client]) -> None:
        run = Run(run_id="liars", config=CoordinatorConfig(total_steps=1))
        places = tuple(Place(client.name) for client in clients)
        self.state = Coordinator(run, Phase.RoundTrain, 0, epoch=Epoch(clients=places))
        self.clients = clients

    @property
    def out(self) -> set[bytes]:
        return {ejection.id for ejection in self.state.ejected}

    def close(
        self, votes: list[frozenset[bytes]], liars: int, sent: dict[bytes, bytes]
    ) -> list[bytes]:
        """Who is learnt from, when the honest witnesses screen so and liars attest everybody."""
        quorum = witness_quorum(len(votes) + liars)
        screened, learnt = [], []
        for place, client in enumerate(self.clients):
            against = sum(client.name in vote for vote in votes)
            if client.name in sent and against >= quorum:
                screened.append(place)
            elif client.name in sent and len(votes) + liars - against >= quorum:
                learnt.append(place)
        self.state = weigh(self.state, screened, learnt)
        return [self.clients[place].name for place in learnt]


class Outcome(msgspec.Struct):
    loss: float
    ejected: list[int | None]
    """The round in which each liar was ejected, if it was."""
    innocent: int
    """Honest clients that were ejected."""
    screened: int
    """Honest results that were not learnt."""


def play(
    files: tuple[Path, Path], honest: int, liars: int, attack: str, screen: bool, bits: int = 1
) -> Outcome:
    data, held_out = (opened(path) for path in files)
    clients = [Client(n, data, bits, 0) for n in range(honest + liars)]
    good, bad = clients[:honest], clients[honest:]
    table, flight = Table(clients), list[tuple[dict[bytes, bytes], list[bytes]]]()
    ejected: dict[bytes, int] = {}
    lost = 0
    for step in range(ROUNDS):
        here = [c for c in clients if c.name not in ejected]
        sent: dict[bytes, bytes] = {}
        for n, c in enumerate(here):
            c.share = BATCH // len(here)
            first = step * BATCH + n * c.share
            lies = c in bad
            sent[c.name] = lie(attack, c, step, first, sent) if lies else c.train(step, first)
        votes = [witness(c, step, sent, clients, screen) for c in good if c in here]
        kept = table.close(votes, sum(c in here for c in bad), sent)
        lost += sum(c.name in sent and c.name not in kept for c in good)
        for name in table.out - ejected.keys():
            ejected[name] = step + 1
        flight.append((sent, kept))
        if step:
            settle(here, flight.pop(0), step - 1)
    loss = Evaluation(good[0].model, held_out, 128).finish(32).loss
    rounds = [ejected.get(c.name) for c in bad]
    return Outcome(loss, rounds, sum(c.name in ejected for c in good), lost)


def witness(
    client: Client, step: int, sent: dict[bytes, bytes], clients: list[Client], screen: bool
) -> frozenset[bytes]:
    if not screen:
        return frozenset()
    sketches = {name: _sketch(client.method, payload) for name, payload in sent.items()}
    arrivals = [Arrival(name, payload[:4096], sketches[name]) for name, payload in sent.items()]
    shares = {c.name: (Span(0, c.share),) for c in clients if c.name in sent}
    return client.screening.judge((0, step), step, arrivals, shares)


_sketches: dict[bytes, bytes] = {}


def _sketch(method: DistroMethod, payload: bytes) -> bytes:
    """Every witness makes its own; they are equal, so here they are made once."""
    if payload not in _sketches:
        if len(_sketches) > 64:
            _sketches.clear()
        _sketches[payload] = method.sketch(payload)
    return _sketches[payload]


def settle(
    clients: list[Client], round_: tuple[dict[bytes, bytes], list[bytes]], step: int
) -> None:
    sent, kept = round_
    payloads = [sent[name] for name in sorted(kept)]
    for client in clients:
        client.method.apply(payloads, step, client.rate.lr(step))


def opened(path: Path) -> Samples:
    return open_data(DataConfig(TokenFiles((str(path),)), LENGTH, wrap=True), 0)


def all_honest(files: tuple[Path, Path], rounds: int) -> dict[str, int]:
    """Six honest clients: one slow, one flaky, one that joins anew again and again."""
    data = opened(files[0])
    rate = Constant(base_lr=0.004)
    clients = [Client(n, data, 1, 1 if n == 0 else 4, rate) for n in range(6)]
    draw, table = np.random.default_rng(0), Table(clients)
    lost = 0
    flight: list[tuple[dict[bytes, bytes], list[bytes]]] = []
    for step in range(rounds):
        if step % 50 == 49:
            clients[2].join_anew(clients[3])
        sent = {}
        for n, client in enumerate(clients):
            torch.set_num_threads(1 + n % 2)
            payload = client.train(step, step * BATCH + n * 4)
            if n != 1 or draw.random() > 0.3:
                sent[client.name] = payload
            client.made.clear()
        torch.set_num_threads(1)
        votes = [witness(c, step, sent, clients, True) for c in clients]
        kept = table.close(votes, 0, sent)
        lost += len(sent) - len(kept)
        flight.append((sent, kept))
        if step:
            settle(clients, flight.pop(0), step - 1)
        if step % 100 == 99:
            print(f"  {step + 1} rounds: {lost} screened, {len(table.out)} ejected", flush=True)
    return {"rounds": rounds, "results screened": lost, "clients ejected": len(table.out)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one liar of four only")
    parser.add_argument("--honest", type=int, default=0, help="only honest clients, so many rounds")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, help="only these; prints, no pages")
    parser.add_argument("--out", type=Path, default=Path("out/learning"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    files = prepared(options.out)
    if options.honest:
        results.write("run_honest", "make bench-liars", all_honest(files, options.honest))
        return
    record = Record(options.out / "liars.jsonl", files)
    sizes = ["1 of 4"] if options.quick else options.sizes or list(SIZES)
    for name in sizes:
        row_of(record, name, "", True)
        for attack in ATTACKS:
            for screen in (True, False) if name == "1 of 4" else (True,):
                row_of(record, name, attack, screen)
    if sizes == list(SIZES):
        figures = {"rounds": ROUNDS, "attacks": table(record), "honest_loss": losses(record)}
        results.write("run_liars", "make bench-liars", figures)


class Record:
    """Outcomes in a file of JSON lines, so that a stopped benchmark continues."""

    def __init__(self, path: Path, files: tuple[Path, Path]) -> None:
        self.path, self.files = path, files

    def get(self, name: str, attack: str, screen: bool, bits: int) -> Outcome:
        key, (n, liars) = [name, attack, screen, bits, ROUNDS], SIZES[name]
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            known, outcome = msgspec.json.decode(line, type=tuple[list[object], Outcome])
            if known == key:
                return outcome
        outcome = play(self.files, n - liars, liars if attack else 0, attack, screen, bits)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode((key, outcome)) + b"\n")
        print(
            f"{name}, {attack or 'honest alone'}, {bits} bits, screened {screen}: {outcome}",
            flush=True,
        )
        return outcome


def row_of(record: Record, name: str, attack: str, screen: bool) -> tuple[float, Outcome]:
    """Per cent above the honest clients alone, and the outcome."""
    bits = ATTACKS.get(attack, 1)
    base, made = record.get(name, "", True, bits).loss, record.get(name, attack, screen, bits)
    return round(100 * (made.loss / base - 1), 1), made


def table(record: Record) -> dict[str, dict[str, object]]:
    rows: dict[str, dict[str, object]] = {}
    for attack in ATTACKS:
        row = rows.setdefault(attack, {})
        row["1 of 4, not screened, %"] = row_of(record, "1 of 4", attack, False)[0]
        for name in SIZES:
            row[f"{name}, %"], made = row_of(record, name, attack, True)
            row[f"{name}, out in round"] = rounds_of(made.ejected)
    return rows


def losses(record: Record) -> dict[str, float]:
    return {name: results.significant(row_of(record, name, "", True)[1].loss) for name in SIZES}


def rounds_of(ejected: list[int | None]) -> str:
    return ", ".join("never" if one is None else str(one) for one in sorted(ejected, key=str))


if __name__ == "__main__":
    main()
