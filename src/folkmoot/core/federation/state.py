"""Everything that a coordinator knows about a federation, as one frozen value.

Who is alive is not here (see core/liveness.py): a heartbeat changes when somebody counts as lost,
never what was decided. So the state is a function of the events in the journal and of nothing else.
"""

from enum import StrEnum

import msgspec

from folkmoot.core.federation.config import Rules


class Phase(StrEnum):
    STANDBY = "STANDBY"
    ROUND = "ROUND"
    FINISHED = "FINISHED"


class Evaluation(msgspec.Struct, frozen=True, array_like=True):
    """What a participant finds of the global model that it was given: on how many samples."""

    loss: float
    samples: int


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """A good update: who, for which round, what bytes, on how many samples."""

    id: str
    round: int
    digest: str
    samples: int
    evaluation: Evaluation | None = None
    # Of how many updates it is the sum, if an aggregator made it; 0: it is one update.
    participants: int = 0

    @property
    def key(self) -> str:
        """Where the bucket keeps it: `<round>/<participant_id>`."""
        return f"{self.round}/{self.id}"


class Best(msgspec.Struct, frozen=True, array_like=True):
    """The global model with the lowest loss so far."""

    round: int
    loss: float


class UpperRound(msgspec.Struct, frozen=True, array_like=True):
    """What the coordinator above an aggregator asks for in a round, and asks to be passed on."""

    round: int
    # Of the model as the aggregator gives it to its own participants.
    digest: str
    epochs: int
    epoch_base: int
    evaluate: bool = False
    settings: str = ""


class State(msgspec.Struct, frozen=True, kw_only=True):
    rules: Rules
    # Whether round 0 begins with no weights, so that participants make the first ones.
    initial: bool = False
    phase: Phase = Phase.STANDBY
    round: int = 0
    epoch_base: int = 0
    members: tuple[str, ...] = ()
    # The round in progress; its seed decides in which order participants are taken.
    seed: int = 0
    selected: tuple[str, ...] = ()
    goal: int = 0
    began: int = 0
    deadline: int | None = None
    # With no deadline of the owner's: how long the slower half gets, once that is known.
    patience: int = 0
    deliveries: dict[str, Delivery] = {}
    quarantined: tuple[str, ...] = ()
    # Not asked in this round any more, because its secure aggregation began without them.
    excused: tuple[str, ...] = ()
    # Left out of this round: they took much longer than the others.
    late: tuple[str, ...] = ()
    # Nobody waits for stragglers any more: the deadline has passed.
    overdue: bool = False
    # The updates that the next global model is being made of.
    closing: tuple[str, ...] = ()
    written: str | None = None
    # What outlives a round.
    global_digest: str = ""
    history: dict[str, Delivery] = {}
    strikes: dict[str, int] = {}
    expelled: tuple[str, ...] = ()
    best: Best | None = None
    # How many models were evaluated since then, and found no better.
    since_best: int = 0
    # In how many rounds one after the other a participant was left out.
    missed: dict[str, int] = {}
    # Of an aggregator: rounds are those of a coordinator above, which makes the models.
    region: bool = False
    above: UpperRound | None = None
    # What is asked for next, until it is taken up; and whether nothing will be.
    upcoming: UpperRound | None = None
    ended: bool = False

    @property
    def initial_round(self) -> bool:
        return self.initial and self.round == 0

    @property
    def epochs(self) -> int:
        if self.above is not None:
            return self.above.epochs
        return 0 if self.initial_round else self.rules.epochs

    def staleness(self, round_: int) -> int:
        """How old an update of `round_` may be. First weights have no model they started from."""
        return 0 if self.initial and round_ == 0 else self.rules.max_staleness

    def delivered(self, id: str) -> bool:
        """Whether `id` delivered an update for the round in progress."""
        return f"{self.round}/{id}" in self.deliveries

    def outstanding(self) -> set[str]:
        """Selected participants that are connected and have yet to deliver."""
        done = {d.id for d in self.deliveries.values() if d.round == self.round}
        return set(self.selected) & set(self.members) - done

    @property
    def given_up(self) -> int:
        """How many of those asked no longer count for the round: bad ones and late ones."""
        return len({*self.quarantined, *self.late})

    def ordered(self) -> tuple[Delivery, ...]:
        """The round's updates in the one order in which they are combined."""
        return tuple(sorted(self.deliveries.values(), key=lambda d: (d.id, d.round)))
