"""A few worlds around every machine, and that they are bad enough to prove something.

`make faults` plays thousands.
"""

import pytest

from folkmoot.core.coordinator import messages as run_messages
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.ledger import Result
from folkmoot.core.federation import messages as federation_messages
from folkmoot.core.machine import Refused, StateChanged
from folkmoot.simulate import WORLDS, WorldReport, play
from folkmoot.simulate.federation.participant import ParticipantNode
from folkmoot.simulate.iteration.nodes import RankNode
from folkmoot.simulate.job.process import SimulatedProcess
from folkmoot.simulate.run.client import ClientNode

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
# Worlds that have shown what is rare. When the rules change they may not; then others are searched.
RARE = {
    "run": (1003, 1005, 1008, 1011, 1012, 1015, 1016, 1017, 1021, 1029, 1058, 1061, 1098),
    "federation": (1032, 1037, 1051),
    "iteration": (1135, 1186),
    "job": (1143,),
}


def played(name: str, start: int, stop: int) -> list[WorldReport]:
    reports = [play(name, seed) for seed in range(start, stop)]
    assert [(r.seed, r.violation) for r in reports if r.violation] == []
    return reports


@pytest.mark.parametrize("start", range(0, 40, 20))
def test_every_invariant_holds_in_worlds_of_a_run(start: int) -> None:
    played("run", start, start + 20)


def test_every_invariant_holds_in_worlds_of_a_federation() -> None:
    reports = played("federation", 0, 100)
    many = ("restarts", "departures", "lost updates", "excused", "bad updates", "regions", "sums")
    for what in many:
        assert sum(r.counts[what] for r in reports) > 5, what


def test_every_invariant_holds_in_worlds_of_an_iteration() -> None:
    reports = played("iteration", 0, 100)
    for what in ("processes", "left out", "fenced"):
        assert sum(r.counts[what] for r in reports) > 20, what


def test_every_invariant_holds_in_worlds_of_a_job() -> None:
    reports = played("job", 0, 100)
    for what in ("failures", "collateral", "masters", "finished"):
        assert sum(r.counts[what] for r in reports) > 5, what


@pytest.mark.parametrize("name", WORLDS)
def test_a_seed_is_one_world(name: str) -> None:
    first, second = WORLDS[name](7), WORLDS[name](7)
    assert first.report() == second.report()
    assert first.audit.log == second.audit.log
    encode = first.audit.machine.encode
    assert encode(first.audit.state) == encode(second.audit.state)


@pytest.mark.parametrize("name", REFUSALS)
def test_worlds_visit_every_edge_and_provoke_every_refusal_they_can(name: str) -> None:
    machine = WORLDS[name].audit_type.machine
    edges = {(e.source, e.target, e.when) for e in machine.TABLE}
    refusals = set(REFUSALS[name])
    for seed in (*RARE.get(name, ()), *range(1000, 1200)):
        world = WORLDS[name](seed)
        world.play()
        for effect in world.audit.effects:
            if isinstance(effect, StateChanged):
                edges.discard((effect.before, effect.after, effect.why))
            elif isinstance(effect, Refused):
                refusals.discard(effect.code)
        if not edges and not refusals:
            return
    raise AssertionError(f"never seen: {edges}, {refusals}")


@pytest.mark.parametrize("name", REFUSALS)
def test_the_chart_that_worlds_are_held_to_is_the_machines_table(name: str) -> None:
    audit = WORLDS[name].audit_type
    edges = {(source, target) for source, to in audit.chart.items() for target in to}
    assert edges == {(edge.source, edge.target) for edge in audit.machine.TABLE}


@pytest.mark.parametrize(
    ("name", "seed", "node", "method"),
    [
        ("run", 9, ClientNode, "_trained"),
        ("federation", 2, ParticipantNode, "_asked"),
        ("iteration", 3, RankNode, "_finish"),
        ("job", 2, SimulatedProcess, "_finish"),
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


def test_a_client_of_a_world_hears_of_its_own_result_after_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As from its peers in a run: what it told before it forgot everything stands."""
    client = next(node for node in WORLDS["run"](9).nodes if type(node) is ClientNode)
    happened: list[c.Event] = []
    monkeypatch.setattr(client, "happen", happened.append)
    own = Result(0, 0, client.id, bytes(32), bytes(32), 1)
    client.forget()
    client.hear(own)
    client.given_result(own)
    assert happened == [c.Offered(own), c.Arrived(own, client.sketch(own))]
