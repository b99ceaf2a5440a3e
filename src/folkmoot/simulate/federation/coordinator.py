"""The coordinator of a federation in its worlds: it answers, misses the silent, combines updates.

Combining takes a while, and is begun again after a crash.
"""

from __future__ import annotations

from hashlib import sha256

from folkmoot.core.federation import Advert, Phase, Task, machine
from folkmoot.core.federation import messages as m
from folkmoot.core.liveness import Liveness
from folkmoot.simulate.coordinator import CoordinatorNode
from folkmoot.simulate.federation.audit import FederationAudit
from folkmoot.simulate.loop import Loop
from folkmoot.simulate.network import Network

LOOK = 500  # milliseconds between two looks at who is silent


class FederationCoordinator(CoordinatorNode):
    audit: FederationAudit

    def __init__(self, loop: Loop, network: Network, audit: FederationAudit) -> None:
        super().__init__(loop, network, audit)
        self.lose_an_update = False  # when it starts again: what was not synced is gone
        self.excuses = False  # whether some come too late for secure aggregations

    def start(self) -> None:
        super().start()
        state, now = self.audit.state, self.loop.now
        self.liveness = Liveness(state.rules.expiry_ms)
        for id in state.members:
            self.liveness.heard(id, now)
        if state.deliveries and self.lose_an_update:
            self.lose_an_update = False
            self.submit(m.Lost((self.loop.random.choice(sorted(state.deliveries)),)))
        elif state.closing:
            self._aggregate(state.round, state.closing)
        self._look()

    def reform(self) -> None:
        self.lose_an_update = self.excuses = False

    # What participants ask.

    def heartbeat(self, id: str) -> Advert | m.Refused:
        advert = machine.advert(self.audit.state, id)
        if not isinstance(advert, m.Refused):
            self.liveness.heard(id, self.loop.now)
        return advert

    def task(self, id: str) -> Task | m.Refused:
        return machine.task(self.audit.state, id)

    # What the machine asks.

    def act(self, effects: tuple[m.Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case m.Joined(id):
                    self.liveness.heard(id, self.loop.now)
                case m.Left(id):
                    self.liveness.forget([id])
                case m.Aggregate(round_, keys):
                    self._aggregate(round_, keys)

    def _aggregate(self, round_: int, keys: tuple[str, ...]) -> None:
        self.after(self.loop.random.uniform(1, 3000), self._combined, round_, self._digest(keys))

    def _combined(self, round_: int, digest: str) -> None:
        self.submit(m.Written(round_, digest))

    def _digest(self, keys: tuple[str, ...]) -> str:
        """Of what these updates make of the round's model."""
        state = self.audit.state
        updates = [d for d in map(state.deliveries.get, keys) if d]
        lines = [state.global_digest, *(f"{d.key} {d.digest} {d.samples}" for d in updates)]
        return sha256("\n".join(lines).encode()).hexdigest()

    # What it does again and again.

    def _look(self) -> None:
        self.after(LOOK, self._look)
        if silent := self.liveness.expired(self.loop.now):
            self.submit(m.Dropped(silent))
        if self.up and self.excuses:
            self._excuse()

    def _excuse(self) -> None:
        """As secure aggregation does when its cohort is complete without some who were asked."""
        state, random = self.audit.state, self.loop.random
        awaited = sorted(state.outstanding())
        if state.phase is not Phase.ROUND or state.closing or not self.loop.chance(0.2):
            return
        late = tuple(id for id in awaited if random.random() < 0.5)
        cohort = len(state.deliveries) + len(awaited) - len(late)
        enough = max(state.rules.enough(state.goal, state.given_up), 2)
        if late and (cohort >= state.goal or (state.overdue and cohort >= enough)):
            self.submit(m.Excused(late, state.round))
