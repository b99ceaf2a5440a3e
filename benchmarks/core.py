"""The core of a run at ten thousand clients, in CPU time, against the goals of the design.

    python benchmarks/core.py

Prints a table and exits with 1 when a goal is missed. Every figure is the best of several
repetitions: the machine may be busy with other things, and what we ask is what the code costs.
"""

import sys
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from time import process_time
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

import results
from folkmoot.core import bloom
from folkmoot.core.coordinator import Coordinator, Phase, apply, create, decode, encode
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model, Run
from folkmoot.core.coordinator.health import participant_item

FEW, MANY = 100, 10_000
REPETITIONS = 5
SEED = 0x5EED


class Line(NamedTuple):
    name: str
    what: str
    figure: float
    unit: str
    goal: float


def best(work: Callable[[], object], repetitions: int = REPETITIONS) -> float:
    """CPU seconds of the fastest of several runs."""
    times = []
    for _ in range(repetitions):
        start = process_time()
        work()
        times.append(process_time() - start)
    return min(times)


def identities(count: int) -> list[bytes]:
    return sorted(sha256(i.to_bytes(4, "little")).digest() for i in range(count))


def new_run(clients: int) -> Coordinator:
    config = CoordinatorConfig(
        total_steps=1000,
        min_clients=min(32, clients),
        init_min_clients=clients,
        global_batch_size_start=2 * clients,
        rounds_per_epoch=50,
    )
    return create(Run(run_id="bench", config=config, model=Model(checkpoint="bench/")), 0)


def feed(state: Coordinator, messages: Iterable[m.AnyEvent], now: int = 0) -> Coordinator:
    for message in messages:
        state, effects = apply(state, message, now, SEED)
        assert not any(isinstance(effect, m.Refused) for effect in effects), effects
    return state


def repeated(times: int, state: Coordinator, messages: list[m.AnyEvent]) -> None:
    for _ in range(times):
        feed(state, messages, 500)


class Stage(NamedTuple):
    """A run of `ids` with the messages of each kind, and the state just before they are sent."""

    ids: list[bytes]
    waiting: Coordinator
    warmup: Coordinator
    train: Coordinator
    witnesses: list[m.OpportunisticWitness]

    def joins(self) -> list[m.Join]:
        return [m.Join(identity, "bench") for identity in self.ids]

    def readies(self) -> list[m.Ready]:
        return [m.Ready(identity, 0) for identity in self.ids]

    def health_checks(self) -> list[m.HealthCheck]:
        return [m.HealthCheck(i, (), 100 + k % 7) for k, i in enumerate(self.ids)]


def stage(clients: int) -> Stage:
    """A run in its second round, the first that judges work."""
    ids = identities(clients)
    at = Stage(ids, new_run(clients), new_run(clients), new_run(clients), [])
    warmup = feed(at.waiting, at.joins())
    train = feed(warmup, at.readies())
    train = feed(train, proofs(train, ids))
    train = feed(train, at.health_checks())
    assert (train.phase, train.round.height) == (Phase.RoundTrain, 1)
    return Stage(ids, at.waiting, warmup, train, proofs(train, ids))


def proofs(state: Coordinator, ids: list[bytes]) -> list[m.OpportunisticWitness]:
    """What the elected witnesses say when they saw everybody."""
    items = bloom.as_rows([participant_item(identity) for identity in ids])
    committee = state.committee(state.round)
    messages = []
    for index in committee.witness_indices():
        bits = bloom.fill(items, state.bloom_shape(state.round, index))
        proof = committee.get_witness(index)
        height = state.round.height
        messages.append(
            m.OpportunisticWitness(ids[index], 0, height, proof, bits, bits, bytes(32), bytes(32))
        )
    return messages


def full_round(at: Stage) -> Line:
    """Every client's sign of life, 32 witnesses with whole filters, both transitions."""
    messages: list[Any] = [*at.health_checks(), *at.witnesses]

    def work() -> None:
        after = feed(at.train, messages, 1000)
        assert after.phase is Phase.RoundTrain
        assert after.round.height == at.train.round.height + 1
        assert after.progress.owed == ()

    return Line("full_round", f"a full round of {MANY:,} clients", best(work), "CPU s", 1.0)


def growth(name: str, few: tuple[Any, list[Any]], many: tuple[Any, list[Any]]) -> Line:
    """How much more a message costs among many than among few."""

    def cost(start: Coordinator, messages: list[Any]) -> float:
        repeat = max(1, 10_000 // len(messages)) if len(messages) > 50 else 50
        work = partial(repeated, repeat, start, messages)
        return best(work, 1) / repeat / len(messages)

    # In turns: whatever else the machine does meets both alike.
    pairs = [(cost(*few), cost(*many)) for _ in range(9)]
    low, high = (min(costs) for costs in zip(*pairs, strict=True))
    what = f"{name}: {high * 1e6:.1f} µs among {MANY:,}, {low * 1e6:.1f} µs among {FEW}"
    return Line(name, what, high / low, "×", 1.5)


def messages_of(at: Stage) -> dict[str, tuple[Coordinator, list[Any]]]:
    """Each kind's messages. All but the last of those that would end the phase."""
    quorum = at.train.quorum(at.train.round)
    return {
        "Join": (at.waiting, at.joins()[:-1]),
        "Ready": (at.warmup, at.readies()[:-1]),
        "HealthCheck": (at.train, at.health_checks()),
        "OpportunisticWitness": (at.train, at.witnesses[: quorum - 1]),
    }


def selection(at: Stage) -> Line:
    """Everyone's position and share at once; then one by one, to see that they are the same."""
    state = at.train

    def work() -> tuple[Any, Any]:
        return state.committee(state.round).witness_positions, state.assignment(
            state.round
        ).shares()

    positions, shares = work()
    committee, assignment = state.committee(state.round), state.assignment(state.round)
    for index in range(MANY):
        assert committee.get_witness(index).position == positions[index]
    assert all(assignment.share(index) == share for index, share in shares)
    assert sorted(index for index, _ in shares) == list(range(MANY))
    what = f"committee and shares of {MANY:,}"
    return Line("selection", what, best(work) * 1e3, "ms", 50.0)


def snapshot(at: Stage) -> Line:
    state = feed(at.train, at.witnesses[:-1])
    data = encode(state)
    assert decode(data) == state
    what = f"snapshot of {len(data) / 1e6:.2f} MB"
    return Line("snapshot", what, best(partial(encode, state), 20) * 1e3, "ms", 20.0)


def lines() -> Iterable[Line]:
    few, many = stage(FEW), stage(MANY)
    yield full_round(many)
    small, large = messages_of(few), messages_of(many)
    for name in small:
        yield growth(name, small[name], large[name])
    yield selection(many)
    yield snapshot(many)


def main() -> int:
    table = Table("what", "result", "goal", "", title="The core of a run")
    missed, figures = 0, {}
    for line in lines():
        good = line.figure <= line.goal
        missed += not good
        figures[line.name] = {"figure": results.significant(line.figure, 2), "unit": line.unit}
        result, goal = f"{line.figure:.2f} {line.unit}", f"≤ {line.goal:g} {line.unit}"
        table.add_row(line.what, result, goal, results.GOALS[good])
    Console().print(table)
    results.write("core", "make bench", figures)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
