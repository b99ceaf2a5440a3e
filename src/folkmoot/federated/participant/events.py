"""What a participant tells those who watch it: one typed record for each thing that happened."""

from folkmoot.host.event_log import Record


class Began(Record, frozen=True, tag=True):
    """The coordinator has accepted us."""

    id: str
    run_id: str


class Reconnected(Record, frozen=True, tag=True):
    """The coordinator had started again, or taken us for lost, and has accepted us again."""

    id: str


class RoundTrained(Record, frozen=True, tag=True):
    """Also of a round to which we only gave the first weights, with no samples."""

    round: int
    samples: int
    seconds: float


class UpdateDelivered(Record, frozen=True, tag=True):
    """It counts."""

    round: int


class RoundFailed(Record, frozen=True, tag=True):
    """Our update came to nothing: refused, or the round's weights cannot be had."""

    round: int
    reason: str


class Ended(Record, frozen=True, tag=True):
    reason: str
