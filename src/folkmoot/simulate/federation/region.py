"""An aggregator in worlds of a federation, and the coordinator above it.

The aggregator asks what is called for above, as a participant does, and delivers the sums of its
own participants. The coordinator above has others to go by: it waits for a sum as long as it likes.
"""

from __future__ import annotations

from typing import NamedTuple

from folkmoot.core.federation import Phase
from folkmoot.core.federation import messages as m
from folkmoot.core.federation.state import UpperRound
from folkmoot.simulate.federation.audit import FederationAudit
from folkmoot.simulate.federation.coordinator import FederationCoordinator
from folkmoot.simulate.loop import Loop
from folkmoot.simulate.network import Network
from folkmoot.simulate.node import Node

TIMEOUT = 2_000


class RoundAbove(NamedTuple):
    """What the coordinator above is at."""

    round: int
    finished: bool


class UpperCoordinator(Node):
    """Has its rounds in a journal: a crash makes it forget nothing."""

    def __init__(self, loop: Loop, rounds: int) -> None:
        super().__init__(loop)
        self._rounds, self._round = rounds, 0
        self.sums: dict[int, str] = {}

    def start(self) -> None:
        self._wait(self._round)

    def asked(self) -> RoundAbove:
        return RoundAbove(self._round, self._round >= self._rounds)

    def deliver(self, round_: int, digest: str) -> bool:
        """Whether this sum counts, now or before; another one for its round does not."""
        if round_ == self._round < self._rounds and round_ not in self.sums:
            self.sums[round_] = digest
            self.after(self.loop.random.uniform(1, 5000), self._go_on, round_)
        return self.sums.get(round_) == digest

    def _wait(self, round_: int) -> None:
        """The others' sums are enough after a while, which may be a short one."""
        if round_ < self._rounds:
            patience = self.loop.random.choice((10, 5_000, 30_000, 30_000, 120_000))
            self.after(self.loop.random.uniform(1, patience), self._go_on, round_)

    def _go_on(self, round_: int) -> None:
        if round_ == self._round:
            self._round += 1
            self._wait(self._round)


class RegionCoordinator(FederationCoordinator):
    def __init__(
        self, loop: Loop, network: Network, audit: FederationAudit, above: UpperCoordinator
    ) -> None:
        super().__init__(loop, network, audit)
        self._above = above

    def start(self) -> None:
        super().start()
        self._ask()

    def _ask(self) -> None:
        self.network.call(self, self._above, self._heard, TIMEOUT, self._above.asked)
        self.after(self.loop.random.choice((20, 1000)), self._ask)

    def _heard(self, called: RoundAbove | None) -> None:
        # Answers overtake each other: what is called for may be less than was called for before.
        if called is None or self.audit.state.phase is Phase.FINISHED:
            return
        if called.finished:
            self.submit(m.Ended())
        else:
            epochs = self.audit.config.rules.epochs
            digest = f"model {called.round}"
            self.submit(m.Called(UpperRound(called.round, digest, epochs, called.round * epochs)))

    def _combined(self, round_: int, digest: str) -> None:
        """Deliver the sum until it is answered, or the round is another one."""
        if self.audit.state.round == round_ and self.audit.state.closing:

            def answered(counts: bool | None) -> None:
                if counts is None:
                    self._combined(round_, digest)

            deliver = self._above.deliver
            self.network.call(self, self._above, answered, TIMEOUT, deliver, round_, digest)
