"""Participants that send bad updates, for wrong rounds, or another one the second time."""

from __future__ import annotations

from typing import Any

from folkmoot.core.federation import messages as m
from folkmoot.simulate.federation.participant import SAMPLES, ParticipantNode


class LyingParticipant(ParticipantNode):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.retired = False

    def reform(self) -> None:
        self.retired = True

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
            )
        )
