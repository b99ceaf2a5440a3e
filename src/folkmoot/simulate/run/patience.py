"""How long an honest witness waits for results, measured once more beside its machine.

It keeps the lengths of its own rounds and looks when it attests without a result that may still
come: not before three usual rounds and the grace have passed, and not after. What its maker does
not give out is not waited for at all.
"""

from statistics import median_low

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.ledger import Ledger
from folkmoot.core.coordinator.client.state import ClientState
from folkmoot.core.coordinator.state import Coordinator, Phase
from folkmoot.core.machine import Effect
from folkmoot.simulate.run.committees import witnesses

ROUNDS, GRACE = 8, 2000


class Patience:
    """Of one client, from when it was started."""

    def __init__(self) -> None:
        self.turn, self.began = (-1, -1), 0
        self.worked: int | None = None
        self.lengths: list[int] = []
        self.withheld: set[tuple[int, int, bytes]] = set()  # epoch, round, maker

    def note(self, client: ClientState, event: c.Event, now: int) -> None:
        """Before the machine hears it."""
        if isinstance(event, c.Saw):
            turn = event.state.turn
            if turn[0] != self.turn[0] or client.epoch != turn[0]:
                self.lengths = []
            if turn != self.turn:
                self.turn, self.began, self.worked = turn, now, None
        elif isinstance(event, c.Unavailable):
            result = event.result
            ledger = client.ledger(result)
            if ledger and ledger.told.get(result.sender) == result.commitment:
                self.withheld.add((result.epoch, result.height, result.sender))

    def look(self, client: ClientState, effects: list[Effect], now: int) -> tuple[int, int] | None:
        """After it: (how long it waited, how long it may) when it gave up waiting for somebody."""
        state = client.shown
        if state is None or not state.epoch.rounds:
            return None
        if self.worked is None and _trained(client, state):
            self.worked = now - self.began
        said = (e.message for e in effects if isinstance(e, c.Submit))
        if not any(isinstance(one, m.OpportunisticWitness) for one in said):
            return None
        ledger = client.ledgers.get(state.round.height - state.run.config.delay)
        if ledger is None or not ledger.shares:
            return None
        missing = self.missing(client, state, ledger)
        usual = median_low(self.lengths[-ROUNDS:]) if self.lengths else None
        if missing or len(ledger.first) == len(ledger.shares):
            self.lengths.append(now - self.began)
        if not missing or usual is None or state.phase is not Phase.RoundTrain:
            return None
        return now - self.began, 3 * max(usual, self.worked or 0) + GRACE

    def missing(self, client: ClientState, state: Coordinator, ledger: Ledger) -> set[bytes]:
        """Whose results may still come."""
        clients = state.epoch.clients
        left = {x.id for x in clients if x.left}
        left |= {clients[place].id for place, _ in state.epoch.leaving}
        where = (client.epoch, ledger.height)
        withheld = {maker for *at, maker in self.withheld if tuple(at) == where}
        return set(ledger.shares) - set(ledger.first) - left - withheld - {client.id}

    def in_vain(self, client: ClientState) -> bool:
        """Whether it is a witness with nothing left to do or to wait for, and does not attest."""
        state = client.shown
        if state is None or state.phase is not Phase.RoundTrain or not _trained(client, state):
            return False
        height = state.round.height
        ledger = client.ledgers.get(height - state.run.config.delay)
        auditing = client.auditing == height and client.verdicts is None
        if ledger is None or auditing or client.prepared != height or client.attested == height:
            return False
        elected = {state.epoch.clients[place].id for place in witnesses(state, state.round)}
        ready = client.phase == "Ready" and client.id in elected
        return ready and not self.missing(client, state, ledger)


def _trained(client: ClientState, state: Coordinator) -> bool:
    own = client.ledgers.get(state.round.height)
    return own is not None and (client.id not in own.shares or client.id in own.first)
