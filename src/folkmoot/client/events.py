"""What a client tells those who watch it: one typed record for each thing that happened."""

import msgspec


class Event(msgspec.Struct, frozen=True, tag_field="type", tag=True):
    """Anything that goes into a client's log."""


class Began(Event, frozen=True, tag=True):
    id: str
    run_id: str
    parameters: int


class StateSeen(Event, frozen=True, tag=True):
    """The authority's state changed."""

    state: str
    epoch: int
    height: int
    step: int
    clients: int


class ModelLoaded(Event, frozen=True, tag=True):
    epoch: int
    source: str  # own, peers, storage, seed
    hash: str
    seconds: float


class ModelNotLoaded(Event, frozen=True, tag=True):
    epoch: int
    reason: str


class ShareTrained(Event, frozen=True, tag=True):
    epoch: int
    height: int
    step: int
    samples: int
    loss: float
    seconds: float
    tokens_per_second: int
    payload_bytes: int


class ShareAbandoned(Event, frozen=True, tag=True):
    epoch: int
    height: int


class ShareFailed(Event, frozen=True, tag=True):
    """Our share could not be trained; its samples are given out again."""

    epoch: int
    height: int
    reason: str


class RoundLearnt(Event, frozen=True, tag=True):
    """The results of a round are in the model."""

    epoch: int
    height: int
    results: int
    hash: str
    seconds: float


class Evaluated(Event, frozen=True, tag=True):
    epoch: int
    height: int
    step: int
    loss: float


class ResultRefused(Event, frozen=True, tag=True):
    """A peer's result is not what it should be; it is as if it had not come."""

    sender: str
    height: int
    reason: str


class ResultMissing(Event, frozen=True, tag=True):
    """The witnesses saw results that are not here; peers are asked."""

    epoch: int
    height: int
    senders: int


class MessageRefused(Event, frozen=True, tag=True):
    message: str
    reason: str


class AuthorityUnreachable(Event, frozen=True, tag=True):
    reason: str


class Peers(Event, frozen=True, tag=True):
    """What the exchange with peers noticed."""

    what: str
    detail: str


class CheckpointStored(Event, frozen=True, tag=True):
    epoch: int
    location: str
    seconds: float


class CheckpointFailed(Event, frozen=True, tag=True):
    epoch: int
    reason: str


class Traffic(Event, frozen=True, tag=True):
    """Bytes on the network since the client began, to peers and to the authority.

    `round_sent` counts what was sent since the round before (not in Warmup, when models travel),
    and `round_results` the client's own result times the peers it was sent to: the least possible.
    """

    epoch: int
    height: int
    sent: int
    received: int
    round_sent: int
    round_results: int


class Ended(Event, frozen=True, tag=True):
    reason: str
