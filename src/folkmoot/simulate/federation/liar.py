"""Participants that send bad updates, updates for wrong rounds, and two for one round."""

from __future__ import annotations

from folkmoot.core.federation import messages as m
from folkmoot.simulate.federation.participant import SAMPLES, ParticipantNode


class LyingParticipant(ParticipantNode):
    def _deliver(self, round_: int) -> None:
        super()._deliver(round_)
        if not self.retired and self.loop.chance(0.25):
            other = m.Delivered(self.name, round_, str(self.loop.random.random()), SAMPLES)
            self.network.send(self, self.coordinator, self.coordinator.submit, other)

    def update(self, round_: int) -> m.AnyEvent:
        truth, random = super().update(round_), self.loop.random
        if self.retired:
            return truth
        digest = f"{self.name} {round_}"
        return random.choice(
            (
                m.Quarantined(self.name, round_, "not finite"),
                m.Delivered(self.name, round_ + 1, digest, SAMPLES),
                m.Delivered(self.name, round_ - 1, digest, SAMPLES),
                m.Delivered(self.name, round_, str(random.random()), SAMPLES),
                m.Delivered(self.name, round_, digest, -3),
                m.Rendezvous(self.name),
            )
        )
