"""Worlds around the machine of a federation: drop-outs, stragglers, latecomers, restarts, liars,
lost updates, and those who come too late for a secure aggregation. In some it is an aggregator's.
"""

from random import Random

from folkmoot.core.federation import Rules
from folkmoot.core.federation import messages as m
from folkmoot.core.machine import Refused
from folkmoot.simulate.audit import Crashed
from folkmoot.simulate.federation.audit import FederationAudit, Opening
from folkmoot.simulate.federation.coordinator import FederationCoordinator
from folkmoot.simulate.federation.faults import FEDERATION_FAULTS
from folkmoot.simulate.federation.liar import LyingParticipant
from folkmoot.simulate.federation.mutants import MUTANTS
from folkmoot.simulate.federation.participant import PROPERTIES, ParticipantNode
from folkmoot.simulate.federation.region import RegionCoordinator, UpperCoordinator
from folkmoot.simulate.node import Node
from folkmoot.simulate.world import World

#: How many worlds in all have a coordinator above.
REGIONS = 0.25


def draw_rules(random: Random, *, region: bool) -> Rules:
    """A small federation, with every rule that matters drawn from the seed."""
    asynchronous = random.random() < 0.2 and not region
    least = random.randrange(1, 5)
    return Rules(
        rounds=random.randrange(1, 12),
        epochs=random.randrange(4),
        min_participants=least,
        fraction_participants=random.choice((1.0, 1.0, 0.6, 0.5, 0.3)),
        spares=random.randrange(4),
        controller=random.choice(("random", "ordered", "all")),
        over_selection=random.choice((1.0, 1.3, 2.0)),
        quorum=random.choice((1.0, 0.8, 0.5)),
        round_deadline=random.choice((0.0, 5.0, 30.0)),
        max_strikes=random.choice((1, 3)),
        buffer=least + random.randrange(3) if asynchronous else 0,
        max_staleness=random.randrange(3) if asynchronous else 0,
        require=PROPERTIES,
    )


class FederationWorld(World):
    audit_type = FederationAudit
    mutants = MUTANTS
    faults = FEDERATION_FAULTS
    lengths = (20_000, 40_000, 80_000, 160_000)
    strikes = 8
    pace = 3.0  # a participant counts as lost after fifteen seconds of silence
    patience = 3_600_000
    audit: FederationAudit
    coordinator: FederationCoordinator
    nodes: list[Node]

    def populate(self) -> None:
        random = self.loop.random
        region = random.random() < REGIONS
        rules = draw_rules(random, region=region)
        initial = random.random() < 0.5 and not region
        self.audit = FederationAudit(Opening(rules, initial, region))
        above = [UpperCoordinator(self.loop, rules.rounds)] if region else []
        if region:
            self.coordinator = RegionCoordinator(self.loop, self.network, self.audit, *above)
        else:
            self.coordinator = FederationCoordinator(self.loop, self.network, self.audit)
        honest = rules.min_connected + random.randrange(4)
        liars = random.choice((0, 0, 1, 2))
        self.nodes = [
            (ParticipantNode if at < honest else LyingParticipant)(
                self.loop, self.network, self.coordinator, f"p{at:02}"
            )
            for at in range(honest + liars)
        ]
        self.nodes += above
        self.sums = above[0].sums if above else {}

    def progress(self) -> str:
        state = self.audit.state
        return f"{state.phase}, round {state.round} of {state.rules.rounds}"

    def counts(self) -> dict[str, int]:
        inputs, effects = self.audit.inputs, self.audit.effects
        taken = [e.event for e in inputs if not any(isinstance(x, Refused) for x in e.effects)]
        return {
            "rounds": self.audit.state.round,
            "restarts": sum(isinstance(entry, Crashed) for entry in self.audit.log),
            "departures": sum(isinstance(effect, m.Left) for effect in effects),
            "bad updates": sum(isinstance(event, m.Quarantined) for event in taken),
            "lost updates": sum(isinstance(event, m.Lost) for event in taken),
            "excused": sum(len(event.ids) for event in taken if isinstance(event, m.Excused)),
            "regions": int(self.audit.config.region),
            "sums": len(self.sums),
        }
