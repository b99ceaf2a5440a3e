"""Small worlds around every machine, and that they are bad enough to prove something."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from folkmoot.core.coordinator import messages as run_messages
from folkmoot.core.federation import messages as federation_messages
from folkmoot.core.machine import Refused, StateChanged
from folkmoot.simulate import WORLDS, play
from folkmoot.simulate.audit import Input
from folkmoot.simulate.federation.participant import ParticipantNode
from folkmoot.simulate.iteration.nodes import RankNode
from folkmoot.simulate.job.process import Process
from folkmoot.simulate.run.client import ClientNode
from folkmoot.simulate.world import World

R = run_messages.Reason
# Refusals that no world's client, liar or owner has a reason to provoke; transcripts cover them.
NOT_PROVOKED = {
    R.WrongId,
    R.WrongAddress,
    R.WrongRun,
    R.WrongBloom,
    R.WrongHash,
    R.WrongLocation,
    R.BadConfig,
}
REFUSALS = {
    "run": {reason.name for reason in set(R) - NOT_PROVOKED},
    "federation": {reason.name for reason in federation_messages.Reason},
    "iteration": set(),
    # Nobody invents actors, roles or gangs.
    "job": {"OldIncarnation", "Gone", "OldGeneration", "NotNow", "OutOfBounds"},
}


# So many worlds at least, and more, up to three times as many, until they have shown everything.
LEAST = {"run": 80, "federation": 300, "iteration": 300, "job": 300}
OFTEN = {
    "run": {},
    "federation": dict.fromkeys(
        ("restarts", "departures", "lost updates", "excused", "bad updates"), 15
    ),
    "iteration": dict.fromkeys(("processes", "left out", "fenced"), 60),
    "job": dict.fromkeys(("failures", "collateral", "masters", "finished"), 15),
}


def shown(world: World) -> Iterator[tuple[Any, ...] | str]:
    """The edges that were taken in a world, and the refusals that were heard."""
    inputs = (entry for entry in world.audit.log if isinstance(entry, Input))
    for effect in (effect for entry in inputs for effect in entry.effects):
        if isinstance(effect, StateChanged):
            yield (effect.before, effect.after, effect.why)
        elif isinstance(effect, Refused):
            yield effect.code


@pytest.mark.parametrize("name", REFUSALS)
def test_invariants_hold_on_every_edge_and_through_every_refusal(name: str) -> None:
    table = WORLDS[name].audit_type.machine.TABLE
    unseen = {(edge.source, edge.target, edge.when) for edge in table} | REFUSALS[name]
    counts: Counter[str] = Counter()
    for played in range(3 * LEAST[name]):
        if played >= LEAST[name] and not unseen:
            break
        world = WORLDS[name](1000 + played)
        report = world.report()
        assert report.violation is None, report.seed
        counts.update(report.counts)
        unseen.difference_update(shown(world))
    assert not unseen, f"never seen: {unseen}"
    assert {what for what, least in OFTEN[name].items() if counts[what] <= least} == set()


@pytest.mark.parametrize("name", WORLDS)
def test_a_seed_is_one_world(name: str) -> None:
    first, second = WORLDS[name](7), WORLDS[name](7)
    assert first.report() == second.report()
    assert first.audit.log == second.audit.log
    encode = first.audit.machine.encode
    assert encode(first.audit.state) == encode(second.audit.state)


@pytest.mark.parametrize("name", REFUSALS)
def test_the_chart_that_worlds_are_held_to_is_the_machines_table(name: str) -> None:
    audit = WORLDS[name].audit_type
    edges = {(source, target) for source, to in audit.chart.items() for target in to}
    assert edges == {(edge.source, edge.target) for edge in audit.machine.TABLE}


@pytest.mark.parametrize(
    ("name", "seed", "node", "method"),
    [
        ("run", 9, ClientNode, "_trained"),
        ("federation", 3, ParticipantNode, "_asked"),
        ("iteration", 3, RankNode, "_finish"),
        ("job", 2, Process, "_finish"),
    ],
)
def test_a_machine_that_never_reaches_its_end_is_caught(
    name: str, seed: int, node: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody trains."""
    monkeypatch.setattr(node, method, lambda *args: None)
    report = play(name, seed)
    assert report.violation is not None
    assert report.violation.startswith("it_finishes_once_faults_stop")
    assert report.transcript.splitlines()[1].startswith(name)
