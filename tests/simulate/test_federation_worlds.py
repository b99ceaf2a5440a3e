"""Many seeded worlds of the federation keep every promise and finish."""

import msgspec
import pytest

from folkmoot.core import federation
from folkmoot.core.federation import Rules, machine
from folkmoot.core.federation import messages as m
from folkmoot.core.federation.state import Delivery
from folkmoot.simulate import replay
from folkmoot.simulate.federation.invariants import broken_promises
from folkmoot.simulate.federation.world import Person, World, simulate


def test_the_same_seed_gives_the_same_world() -> None:
    first, second = World(7), World(7)
    assert first.run() == second.run()
    assert first.transcript == second.transcript


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_worlds_keep_their_promises_and_finish(start: int) -> None:
    reports = [simulate(seed) for seed in range(start, start + 50)]
    assert [(r.seed, r.violation, r.transcript) for r in reports if r.violation] == []
    assert sum(r.counts["restarts"] for r in reports) > 50
    assert sum(r.counts["departures"] for r in reports) > 50
    assert sum(r.counts["lost updates"] for r in reports) > 5
    assert sum(r.counts["excused"] for r in reports) > 5


def test_a_machine_that_counts_a_stranger_is_caught() -> None:
    before = federation.create(Rules(rounds=1))
    stranger = Delivery("stranger", 0, "x", 1)
    after = msgspec.structs.replace(before, deliveries={stranger.key: stranger})
    delivered = m.Delivered("stranger", 0, "x", 1)
    broken = broken_promises(before, delivered, after, ())
    assert broken == ["an update counts only for who was asked"]


def test_a_federation_that_never_finishes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears the call to train, so nothing is ever delivered."""
    monkeypatch.setattr(Person, "_train", lambda self, round_: None)
    report = simulate(3)
    assert report.violation.startswith("not finished")
    assert "Rendezvous" in report.transcript


def test_the_transcript_of_a_world_replays_and_holds() -> None:
    world = World(7)
    world.run()
    text = "\n".join(world.transcript)
    assert text.count("\n! ") == world.coordinator.restarts > 0
    assert replay(text) is None


def test_the_transcript_of_a_broken_machine_fails_until_it_is_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine that lets anybody deliver breaks a promise; its transcript shows which."""
    with monkeypatch.context() as broken:
        broken.setattr(machine, "_deliverer", lambda state, id, round_: None)
        report = next(r for r in map(simulate, range(200)) if r.violation)
        assert report.violation == "an update counts only for who was asked"
        assert replay(report.transcript) == report.violation
    assert replay(report.transcript) is None


def test_a_machine_that_forgets_is_caught_by_its_transcript(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The journal of a machine that also looks at something else does not bring its state back."""
    text = "\n".join([*World(7).transcript, '> 5 {"type":"Rendezvous","id":"a"}', "! 9 killed"])
    assert replay(text) is None
    calls = iter(range(100))
    apply = federation.apply

    def moody(state, event, now, seed):
        changed, effects = apply(state, event, now, seed)
        return msgspec.structs.replace(changed, epoch_base=next(calls)), effects

    monkeypatch.setattr(federation, "apply", moody)
    assert replay(text) == "the journal gives another state than the one that was lost"


def test_what_is_no_transcript_is_told() -> None:
    with pytest.raises(ValueError, match="not 'what'"):
        replay("\n".join([*World(7).transcript, "what is this"]))
