"""What a coordinator tells those who watch it, beside the effects of its machine."""

from typing import Any

from folkmoot.host.event_log import Record


class Started(Record, frozen=True, tag=True):
    run_id: str
    phase: str
    round: int
    resumed: bool
    address: str


class Aggregated(Record, frozen=True, tag=True):
    """A round's updates became the next global model."""

    round: int
    updates: int
    seconds: float
    digest: str
    figures: dict[str, float]


class AggregationFailed(Record, frozen=True, tag=True):
    round: int
    reason: str
    retry_in: float


class UpdateRefused(Record, frozen=True, tag=True):
    """An update was not counted."""

    id: str
    round: int
    reason: str


class Reported(Record, frozen=True, tag=True):
    """What a participant reported with its update."""

    id: str
    round: int
    samples: int
    metrics: dict[str, Any]
    history: dict[str, list[float]]


class ReportRefused(Record, frozen=True, tag=True):
    """Metrics that cannot be read never cost an update."""

    id: str
    round: int
    reason: str


class AttemptFailed(Record, frozen=True, tag=True):
    """For the event log: masked updates could not be summed and are asked for again."""

    round: int
    attempt: int
    reason: str


class Unmasked(Record, frozen=True, tag=True):
    """For the event log: the masks of a round's sum are known."""

    round: int
    attempt: int
    delivered: int
    dropped: int


class Pruned(Record, frozen=True, tag=True):
    before_round: int
    objects: int


class Stopped(Record, frozen=True, tag=True):
    phase: str
    round: int
