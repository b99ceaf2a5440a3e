"""What a coordinator tells those who watch it, beside the effects of its machine."""

from typing import Any

from folkmoot.host.event_log import Record


class Started(Record, frozen=True, tag=True):
    run_id: str
    phase: str
    round: int
    resumed: bool
    address: str


class OfRound(Record, frozen=True, tag=True):
    """What belongs to a round."""

    round: int


class OfParticipant(Record, frozen=True, tag=True):
    """What one participant did in a round."""

    id: str
    round: int


class Aggregated(OfRound, frozen=True, tag=True):
    """A round's updates became the next global model."""

    updates: int
    seconds: float
    digest: str
    figures: dict[str, float]


class SumMade(OfRound, frozen=True, tag=True):
    """A round's updates became a sum, for the coordinator above."""

    updates: int
    samples: int
    seconds: float


class AggregationFailed(OfRound, frozen=True, tag=True):
    reason: str
    retry_in: float


class UpdateSpoiled(OfParticipant, frozen=True, tag=True):
    """An update that counted makes no model together with the others, and was taken out."""

    reason: str


class UpdateRefused(OfParticipant, frozen=True, tag=True):
    """An update was not counted."""

    reason: str


class Reported(OfParticipant, frozen=True, tag=True):
    """What a participant reported with its update."""

    samples: int
    metrics: dict[str, Any]
    history: dict[str, list[float | None]]


class ReportRefused(OfParticipant, frozen=True, tag=True):
    """Metrics that cannot be read never cost an update."""

    reason: str


class EvaluationSummary(OfRound, frozen=True, tag=True):
    """What participants found of a round's global model: means, weighted by samples."""

    participants: int
    samples: int
    metrics: dict[str, float]


class CentrallyEvaluated(OfRound, frozen=True, tag=True):
    """What the owner found of a round's global model."""

    loss: float
    metrics: dict[str, float]


class AttemptFailed(OfRound, frozen=True, tag=True):
    """For the event log: masked updates could not be summed and are asked for again."""

    attempt: int
    reason: str


class Unmasked(OfRound, frozen=True, tag=True):
    """For the event log: the masks of a round's sum are known."""

    attempt: int
    delivered: int
    dropped: int


class Pruned(Record, frozen=True, tag=True):
    before_round: int
    objects: int


class Stopped(Record, frozen=True, tag=True):
    phase: str
    round: int
