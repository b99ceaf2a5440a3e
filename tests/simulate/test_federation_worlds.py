"""Many seeded worlds of the federation keep every promise and finish."""

import msgspec
import pytest

from folkmoot.core import federation
from folkmoot.core.federation import Rules
from folkmoot.core.federation import messages as m
from folkmoot.core.federation.state import Delivery
from folkmoot.simulate.federation import Person, World, broken_promises, simulate


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


def test_a_machine_that_counts_a_stranger_is_caught() -> None:
    before = federation.begin(Rules(rounds=1))
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
