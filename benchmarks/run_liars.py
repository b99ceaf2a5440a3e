"""What liars do to a run: each attack, with only bounded influence and with screening and audits.

Clients in one process train a small GPT on the source of Python's standard library with the real
method (DisTrO) and its real wire format; the honest ones witness every round with the real rules
(`screening.py`, `audits.py`, a quorum, `standing.py`). Liars also lie as witnesses: they attest
each other, screen nobody, and pass each other as auditors. Every run is compared with one of its
honest clients alone, which train as many samples in a round; several of those, on other data, show
how much two runs differ by chance.

    python benchmarks/run_liars.py              # some minutes; continues where it was stopped
    python benchmarks/run_liars.py --quick      # one liar of four only
    python benchmarks/run_liars.py --honest 2000    # honest clients of all kinds: nobody is ejected
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from msgspec.structs import replace

import results
from folkmoot.core.coordinator import Phase
from folkmoot.core.coordinator.assignment import Share, Span
from folkmoot.core.coordinator.audits import audited_samples, auditors, found, others
from folkmoot.core.coordinator.client.screening import Arrival, Screening
from folkmoot.core.coordinator.config import CoordinatorConfig, Run
from folkmoot.core.coordinator.standing import count_audits, weigh
from folkmoot.core.coordinator.state import Client as Place
from folkmoot.core.coordinator.state import Coordinator, Epoch, Round, Witness
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
from folkmoot.learning.trial import passes
from learning_curves import prepared

LENGTH, BATCH, ROUNDS, AUDITED = 64, 24, 100, 100
"""Samples of a round are shared out among those who train; per cent of the results are audited."""
RATE = Cosine(base_lr=0.012, warmup_steps=5, total_steps=ROUNDS)
MODEL = GptConfig(layers=1, heads=2, width=64, context=LENGTH)
SEEDS = 3
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
        self.threads, self.seconds = 1, 0.0

    def train(self, step: int, first: int, count: int | None = None) -> bytes:
        ids = range(first, first + (self.share if count is None else count))

        def closure(_: int) -> float:
            return loss_and_gradients(self.model, self.data.samples(ids))

        began = time.process_time()
        self.made.append(self.method.contribute(closure, step, self.rate.lr(step)).payload)
        self.seconds += time.process_time() - began
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
        config = CoordinatorConfig(total_steps=1, delay=1, verification_percent=AUDITED)
        places = tuple(Place(client.name) for client in clients)
        run, epoch = Run(run_id="liars", config=config), Epoch(clients=places)
        self.state = Coordinator(run, Phase.RoundTrain, 0, epoch=epoch)
        self.clients, self.verdicts = clients, Counter[str]()

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

    def audit(self, step: int, sent: Round_, good: set[bytes], auditor: Auditor) -> None:
        """In round `step`, of the results of two rounds before; others than the `good` pass each
        other."""
        names, out = [c.name for c in self.clients], self.out
        absent = tuple(p for p, name in enumerate(names) if name in out)
        spans = (Span(0, len(names)),)
        rounds = [Round(h, h, _seed(h), spans, absent) for h in range(step - 2, step + 1)]
        state = replace(self.state, epoch=replace(self.state.epoch, rounds=tuple(rounds)))
        by, given = rounds[-1], auditors(state, rounds[-1])
        learnt = sorted(names.index(name) for name in sent.kept if name not in out)
        passed, failed = ({p: list[int]() for p in range(len(names))} for _ in range(2))
        for maker, who in given.items():
            beside = others(by, maker, learnt)
            if maker not in learnt or not beside:
                continue
            samples = audited_samples(by, maker, sent.shares[names[maker]])
            payloads = [sent.payloads[names[p]] for p in (maker, *beside)]
            for place in who:
                truth = auditor.passes(self.clients[place], payloads, samples)
                # Who accuses the honest as well is found sooner, alone with what it says.
                spared = {names[place], names[maker]}.isdisjoint(good)
                passes = spared or truth
                (passed if passes else failed)[place].append(maker)
        committee = state.committee(by)
        said = [
            Witness(committee.get_witness(i), *[b""] * 4, (), tuple(passed[p]), tuple(failed[p]))
            for p in range(len(names))
            for i in _index(state, p)
        ]
        found_ = found(state, replace(by, witnesses=tuple(said)))
        for kind, places in zip(("passed", "failed", "alone"), found_, strict=True):
            for place in places:
                who_ = "honest" if names[place] in good else "liars"
                self.verdicts[f"{who_} {kind}"] += 1
        self.state = replace(count_audits(state, *found_), epoch=self.state.epoch)


def _index(state: Coordinator, place: int) -> list[int]:
    index = state.index(state.round, place)
    return [] if index is None else [index]


def _seed(height: int) -> int:
    return int.from_bytes(sha256(height.to_bytes(8, "little")).digest()[:8], "little")


class Round_(NamedTuple):
    """What was sent in a round: payloads, the shares they stand for, and who is learnt from."""

    payloads: dict[bytes, bytes]
    shares: dict[bytes, Share]
    kept: list[bytes]


class Auditor:
    """Audits as the learner of a client does; equal clients find the same, so it is found once for
    each number of threads."""

    def __init__(self) -> None:
        self.seconds, self._found = 0.0, dict[tuple[bytes, int], bool]()

    def passes(self, client: Client, payloads: list[bytes], samples: Share) -> bool:
        key = (sha256(b"".join(payloads)).digest(), client.threads)
        if key not in self._found:
            began = time.process_time()
            ids = [i for span in samples for i in range(span.start, span.stop)]
            along = client.method.contrast(payloads[0], payloads[1:])
            torch.set_num_threads(client.threads)
            good = passes(client.model, along, client.data.samples(ids))
            torch.set_num_threads(1)
            self._found[key] = good
            self._took = time.process_time() - began
        self.seconds += self._took
        return self._found[key]


class Outcome(msgspec.Struct):
    loss: float
    ejected: list[int | None]
    """The round in which each liar was ejected, if it was."""
    innocent: int
    """Honest clients that were ejected."""
    screened: int
    """Honest results that were not learnt."""
    verdicts: dict[str, int] = {}
    audit_percent: float = 0.0
    """Of the time that is spent on training, how much all audits together take as well."""


def play(
    files: tuple[Path, Path],
    honest: int,
    liars: int,
    attack: str,
    screen: bool,
    bits: int = 1,
    seed: int = 0,
) -> Outcome:
    data, held_out = (opened(path) for path in files)
    clients = [Client(n, data, bits, 0) for n in range(honest + liars)]
    good, bad = clients[:honest], clients[honest:]
    table, rounds, auditor = Table(clients), list[Round_](), Auditor()
    names = {c.name for c in good}
    ejected: dict[bytes, int] = {}
    lost = 0
    for step in range(ROUNDS):
        here = [c for c in clients if c.name not in ejected]
        if screen and step >= 2:
            table.audit(step, rounds[step - 2], names, auditor)
        sent: dict[bytes, bytes] = {}
        shares: dict[bytes, Share] = {}
        for n, c in enumerate(here):
            c.share = BATCH // len(here)
            first = seed * 1_000_000 + step * BATCH + n * c.share
            shares[c.name] = (Span(first, first + c.share),)
            lies = c in bad
            sent[c.name] = lie(attack, c, step, first, sent) if lies else c.train(step, first)
        votes = [witness(c, step, sent, clients, screen) for c in good if c in here]
        kept = table.close(votes, sum(c in here for c in bad), sent)
        lost += sum(c.name in sent and c.name not in kept for c in good)
        for name in table.out - ejected.keys():
            ejected[name] = step + 1
        rounds.append(Round_(sent, shares, kept))
        if step:
            settle(here, rounds[step - 1], step - 1)
    loss = Evaluation(good[0].model, held_out, 128).finish(32).loss
    when = [ejected.get(c.name) for c in bad]
    percent = 100 * auditor.seconds / sum(c.seconds for c in clients)
    innocent = sum(c.name in ejected for c in good)
    return Outcome(loss, when, innocent, lost, dict(table.verdicts), percent)


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


def settle(clients: list[Client], round_: Round_, step: int) -> None:
    payloads = [round_.payloads[name] for name in sorted(round_.kept)]
    for client in clients:
        client.method.apply(payloads, step, client.rate.lr(step))


def opened(path: Path) -> Samples:
    return open_data(DataConfig(TokenFiles((str(path),)), LENGTH, wrap=True), 0)


def all_honest(files: tuple[Path, Path], rounds: int) -> dict[str, int]:
    """Six honest clients: one slow, one flaky, one that joins anew again and again."""
    data = opened(files[0])
    rate = Constant(base_lr=0.004)
    clients = [Client(n, data, 1, 1 if n == 0 else 4, rate) for n in range(6)]
    draw, table, auditor = np.random.default_rng(0), Table(clients), Auditor()
    names = {client.name for client in clients}
    lost = 0
    flight: list[Round_] = []
    for n, client in enumerate(clients):
        client.threads = 1 + n % 2
    for step in range(rounds):
        if step % 50 == 49:
            clients[2].join_anew(clients[3])
        if step >= 2:
            table.audit(step, flight[-2], names, auditor)
        sent, shares = {}, {}
        for n, client in enumerate(clients):
            torch.set_num_threads(client.threads)
            first = step * BATCH + n * 4
            payload = client.train(step, first)
            shares[client.name] = (Span(first, first + client.share),)
            if n != 1 or draw.random() > 0.3:
                sent[client.name] = payload
            client.made.clear()
        torch.set_num_threads(1)
        votes = [witness(c, step, sent, clients, True) for c in clients]
        kept = table.close(votes, 0, sent)
        lost += len(sent) - len(kept)
        flight = [*flight[-2:], Round_(sent, shares, kept)]
        if step:
            settle(clients, flight[-2], step - 1)
        if step % 100 == 99:
            said = f"{lost} screened, {len(table.out)} ejected, {dict(table.verdicts)}"
            records = [(record.passed, record.failed) for record in table.state.audits]
            print(f"  {step + 1} rounds: {said}, {records}", flush=True)
    figures = {"rounds": rounds, "results screened": lost, "clients ejected": len(table.out)}
    return {**figures, "per cent audited": AUDITED, **table.verdicts}


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
        noise(record, name)
        for attack in ATTACKS:
            for screen in (True, False) if name == "1 of 4" else (True,):
                row_of(record, name, attack, screen)
    if sizes == list(SIZES):
        figures = {
            "rounds": ROUNDS,
            "audited": AUDITED,
            "attacks": table(record),
            "honest_loss": losses(record),
            "noise": {name: noise(record, name) for name in SIZES},
        }
        results.write("run_liars", "make bench-liars", figures)


class Record:
    """Outcomes in a file of JSON lines, so that a stopped benchmark continues."""

    def __init__(self, path: Path, files: tuple[Path, Path]) -> None:
        self.path, self.files = path, files

    def get(self, name: str, attack: str, screen: bool, bits: int, seed: int = 0) -> Outcome:
        key, (n, liars) = [name, attack, screen, bits, ROUNDS, AUDITED, seed], SIZES[name]
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            known, outcome = msgspec.json.decode(line, type=tuple[list[object], Outcome])
            if known == key:
                return outcome
        outcome = play(self.files, n - liars, liars if attack else 0, attack, screen, bits, seed)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode((key, outcome)) + b"\n")
        print(
            f"{name}, {attack or 'honest alone'}, {bits} bits, screened {screen}, seed {seed}: "
            f"{outcome}",
            flush=True,
        )
        return outcome


def row_of(record: Record, name: str, attack: str, screen: bool) -> tuple[float, Outcome]:
    """Per cent above the honest clients alone, and the outcome."""
    bits = ATTACKS.get(attack, 1)
    base, made = record.get(name, "", True, bits).loss, record.get(name, attack, screen, bits)
    return round(100 * (made.loss / base - 1), 1), made


def noise(record: Record, name: str) -> float:
    """The largest difference between runs of honest clients on other data, in per cent."""
    found = [record.get(name, "", True, 1, seed).loss for seed in range(SEEDS)]
    return round(100 * (max(found) / min(found) - 1), 1)


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
