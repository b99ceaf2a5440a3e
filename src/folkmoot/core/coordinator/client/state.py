"""What a client knows of its run, and how far it is. Changed by its machine only.

Unlike the states of the other machines this one is not frozen: a round of ten thousand clients is
ten thousand offers, and each would copy the ledger that the one before it had made.
"""

from enum import StrEnum

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.client.ledger import Ledger, Result
from folkmoot.core.coordinator.client.screening import Screening
from folkmoot.core.coordinator.state import Coordinator


class Phase(StrEnum):
    """How far the client is with the model of the present epoch."""

    Away = "Away"  # not in an epoch
    Loading = "Loading"
    Ready = "Ready"  # the model is as the round `prepared` wants it
    Training = "Training"
    Learning = "Learning"
    Storing = "Storing"
    Lost = "Lost"  # cannot follow this epoch any more


class ClientState:
    """One client's view of the run, and what it has done about it."""

    def __init__(self, identity: bytes, run_id: str, address: bytes = b"") -> None:
        self.id = identity
        self.run_id = run_id
        self.address = address
        self.phase = Phase.Away
        self.shown: Coordinator | None = None  # the run, as we saw it last
        self.model_hash = b""  # of the model in memory
        self.speed = 0
        self.unreachable: tuple[bytes, ...] = ()
        self.metadata = m.WitnessMetadata()
        self.waiting = False  # whether the run knows that we want to be in the next epoch
        self.not_loaded = 0  # how often in a row
        self.join_after = 0
        self.next_sign = 0
        self.screening = Screening()
        self.turn = (-1, -1)  # epoch and round that we saw last
        self.turn_began = 0
        self.worked: int | None = None  # how long our share of that round took, once it is done
        self.begin(-1)

    def begin(self, epoch: int) -> None:
        """Forget the last epoch."""
        self.epoch = epoch
        self.prepared = -1  # the round for which the model is prepared, or being prepared
        self.trained = -1  # the last round whose share was begun
        self.ledgers: dict[int, Ledger] = {}
        self.early: list[Result] = []  # of rounds that we have not seen begin
        self.sharing = False
        self.attested = -1  # the last round that we attested
        self.auditing = -1  # the last round in which we began to audit
        #: Whose results passed there, and whose failed, once it is known.
        self.verdicts: tuple[tuple[bytes, ...], tuple[bytes, ...]] | None = None
        self.closing = (-1, 0)  # a round that is in RoundWitness, and until when an audit may take
        self.saving = -1  # the round whose model we store, or stored
        self.accused = -1  # the last round after which we accused
        self.paces: list[int] = []  # how long the last rounds of this epoch took us
        self.awaited: tuple[bytes, ...] = ()  # whom we wait for
        self.unanswered: dict[bytes, int] = {}  # who was asked for a sign and gave none; since when
        self.hung_up: set[bytes] = set()  # on the authority, it says; not heard since
        self.probe_after = 0
        #: What we told the run last: epoch and height, who is gone, who told of two results.
        self.called: tuple[tuple[int, int], set[bytes], set[bytes]] = ((-1, -1), set(), set())
        self.equivocated: set[bytes] = set()  # who told of two results for one share
        self.screened: frozenset[bytes] = frozenset()  # whose results we would not have learnt
        self.elected: tuple[tuple[int, bool, int, int], dict[bytes, int]] = ((-1, False, 0, 0), {})
        self.ask_after = 0
        self.asked = 0  # how often for the results that the next round needs

    def heard(self, peer: bytes) -> None:
        """A peer is there, or was a moment ago."""
        self.unanswered.pop(peer, None)

    def ledger(self, result: Result) -> Ledger | None:
        """Where a result belongs, if its round is still of interest."""
        return self.ledgers.get(result.height) if result.epoch == self.epoch else None

    def told_another(self, result: Result) -> bool:
        """Whether we are known to have told of another result for this share."""
        ledger = self.ledger(result)
        return bool(ledger and ledger.told.get(self.id, result.commitment) != result.commitment)

    def arrived(self, result: Result, sketch: bytes = b"") -> bool:
        """Note a result whose bytes are here; False when nobody awaits it."""
        ledger = self.ledger(result)
        if ledger is None or result.sender not in ledger.shares:
            return False
        ledger.arrived(result, sketch)
        return True
