"""A participant of a simulated federation: the real participant's machine with a shell for worlds.

It registers, sends heartbeats, trains when it is asked to, and delivers until it is answered.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from folkmoot.core.federation import messages as m
from folkmoot.core.federation import participant as part
from folkmoot.core.federation.config import Scalar
from folkmoot.simulate.federation.coordinator import FederationCoordinator
from folkmoot.simulate.loop import Loop
from folkmoot.simulate.network import Network
from folkmoot.simulate.node import Node

TIMEOUT = 2_000
SAMPLES = 10
#: What every world requires; liars may come without.
PROPERTIES: dict[str, Scalar] = {"gpu": True}


class ParticipantNode(Node):
    def __init__(
        self, loop: Loop, network: Network, coordinator: FederationCoordinator, name: str
    ) -> None:
        super().__init__(loop)
        self.network, self.coordinator, self.name = network, coordinator, name
        self.slowness = loop.random.choice((1, 1, 1, 10))
        self.session = 0
        self.forget()

    def forget(self) -> None:
        self.state = part.ParticipantState()
        self.session += 1

    def start(self) -> None:
        """Register, until there is room."""
        self.session += 1
        self._call(self._registered, self.coordinator.submit, m.Rendezvous(self.name, PROPERTIES))

    def update(self, round_: int) -> m.AnyEvent:
        """What it delivers for a round."""
        return m.Delivered(self.name, round_, f"{self.name} {round_}", SAMPLES)

    def _call(self, then: Any, action: Any, *args: Any) -> None:
        self.network.call(self, self.coordinator, then, TIMEOUT, action, *args)

    def _pause(self) -> float:
        return self.loop.random.uniform(500, 3000)

    def _registered(self, effects: tuple[m.Effect, ...] | None) -> None:
        if effects is None or m.Reply("LATER") in effects:
            self.after(self._pause(), self.start)
        elif m.Reply("ACCEPT") in effects:
            self._beat(self.session)
        # Else it was expelled, and never comes again.

    def _beat(self, session: int) -> None:
        if session == self.session:
            self._call(self._heard, self.coordinator.heartbeat, self.name)
            self.after(self._pause(), self._beat, session)

    def _heard(self, advert: Any) -> None:
        if isinstance(advert, m.Refused):
            self.start()
        elif advert is not None:
            heard = part.Heard(advert.phase, advert.round, advert.expected)
            for effect in self._apply(heard):
                if isinstance(effect, part.Train):
                    self._call(self._asked, self.coordinator.task, self.name)

    def _apply(self, event: part.AnyEvent) -> tuple[m.Effect, ...]:
        self.state, effects = part.apply(self.state, event)
        return effects

    def _asked(self, task: Any) -> None:
        round_ = self.state.training
        if task is None or isinstance(task, m.Refused) or task.round != round_:
            self._apply(part.Failed())
            return
        took = self.loop.random.uniform(100, 5000) * self.slowness
        self.after(took, self._deliver, round_)

    def _deliver(self, round_: int) -> None:
        answered = partial(self._answered, round_)
        self._call(answered, self.coordinator.submit, self.update(round_))

    def _answered(self, round_: int, effects: tuple[m.Effect, ...] | None) -> None:
        if effects is None:
            self._deliver(round_)
            return
        refused = next((e for e in effects if isinstance(e, m.Refused)), None)
        code = refused.code if refused else ""
        counted = any(isinstance(e, m.Counted) for e in effects)
        known = counted or code == m.Reason.DifferentUpdate
        self._apply(part.Trained() if known else part.Failed())
        if code == m.Reason.UnknownParticipant:
            self.start()
