"""Small worlds around the machine of a run, and that they are bad enough to prove something."""

from collections import Counter

import pytest

from folkmoot.core.coordinator import encode
from folkmoot.core.coordinator import messages as m
from folkmoot.simulate import simulate
from folkmoot.simulate.run.audit import Input
from folkmoot.simulate.run.invariants import EDGES
from folkmoot.simulate.run.real_client import simulate as simulate_members
from folkmoot.simulate.run.world import RunWorld

# Refusals that no world's client, liar or owner has a reason to provoke; transcripts cover them.
NOT_PROVOKED = {
    m.Reason.WrongId,
    m.Reason.WrongAddress,
    m.Reason.WrongRun,
    m.Reason.WrongBloom,
    m.Reason.WrongHash,
    m.Reason.WrongLocation,
    m.Reason.BadConfig,
}


@pytest.mark.parametrize("start", range(0, 120, 20))
def test_every_invariant_holds_in_worlds_of_faults(start: int) -> None:
    for seed in range(start, start + 20):
        report = simulate(seed)
        assert report.violation is None, f"seed {seed}"


def test_a_seed_is_one_world() -> None:
    first, second = RunWorld(7), RunWorld(7)
    first.play()
    second.play()
    assert first.audit.log == second.audit.log
    assert encode(first.audit.state) == encode(second.audit.state)


def test_worlds_visit_every_edge_and_provoke_every_refusal_they_can() -> None:
    edges: set[tuple[str, str]] = set()
    reasons: Counter[m.Reason] = Counter()
    expected = set(m.Reason) - NOT_PROVOKED
    for seed in range(1000, 1200):
        world = RunWorld(seed)
        world.play()
        inputs = (entry for entry in world.audit.log if isinstance(entry, Input))
        for effect in (effect for entry in inputs for effect in entry.effects):
            if isinstance(effect, m.StateChanged):
                edges.add((effect.before, effect.after))
            elif isinstance(effect, m.Refused):
                reasons[effect.reason] += 1
        if edges == EDGES and expected <= reasons.keys():
            return
    raise AssertionError(f"edges {EDGES - edges}, reasons {expected - reasons.keys()}")


def test_the_real_clients_machine_lives_in_the_same_worlds() -> None:
    for seed in range(12):
        report = simulate_members(seed)
        assert report.violation is None, f"seed {seed}"
