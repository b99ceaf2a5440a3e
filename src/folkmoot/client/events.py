"""What a client tells those who watch it: one typed record for each thing that happened."""

from folkmoot.host.event_log import Record


class OfRound(Record, frozen=True, tag=True):
    """What belongs to a round of an epoch."""

    epoch: int
    height: int


class Began(Record, frozen=True, tag=True):
    id: str
    run_id: str
    parameters: int


class Doing(Record, frozen=True, tag=True):
    """What a client that does not train is at, or waits for."""

    what: str


class RunChanged(Record, frozen=True, tag=True):
    """The owner changed what is computed; the client builds its model anew."""

    changes: tuple[str, ...]


class StateSeen(Record, frozen=True, tag=True):
    """The authority's state changed."""

    state: str
    epoch: int
    height: int
    step: int
    clients: int


class ModelLoaded(Record, frozen=True, tag=True):
    epoch: int
    source: str  # own, peers, storage, seed
    hash: str
    seconds: float


class ModelNotLoaded(Record, frozen=True, tag=True):
    epoch: int
    reason: str


class ShareTrained(OfRound, frozen=True, tag=True):
    step: int
    samples: int
    loss: float
    seconds: float
    tokens_per_second: int
    payload_bytes: int


class ShareAbandoned(OfRound, frozen=True, tag=True):
    """Our share is given up: nobody can attest it any more."""


class ShareFailed(OfRound, frozen=True, tag=True):
    """Our share could not be trained; its samples are given out again."""

    reason: str


class RoundLearnt(OfRound, frozen=True, tag=True):
    """The results of a round are in the model."""

    results: int
    hash: str
    seconds: float


class Evaluated(OfRound, frozen=True, tag=True):
    step: int
    loss: float


class ResultsAudited(OfRound, frozen=True, tag=True):
    """We tried others' results of an earlier round on what they were assigned."""

    passed: tuple[str, ...]
    failed: tuple[str, ...]
    seconds: float


class NotAudited(OfRound, frozen=True, tag=True):
    """A result could not be tried."""

    reason: str


class ResultRefused(Record, frozen=True, tag=True):
    """A peer's result is not what it should be; it is as if it had not come."""

    sender: str
    height: int
    reason: str


class ResultMissing(OfRound, frozen=True, tag=True):
    """The witnesses saw results that are not here; peers are asked."""

    senders: int


class MessageRefused(Record, frozen=True, tag=True):
    message: str
    reason: str


class AuthorityUnreachable(Record, frozen=True, tag=True):
    reason: str


class Peers(Record, frozen=True, tag=True):
    """What the exchange with peers noticed."""

    what: str
    detail: str


class PeerUnreachable(Record, frozen=True, tag=True):
    """A member cannot be connected to; it is tried again."""

    peer: str
    address: str
    reason: str


class PeerReached(Record, frozen=True, tag=True):
    """One that could not be connected to before."""

    peer: str


class CheckpointStored(Record, frozen=True, tag=True):
    epoch: int
    location: str
    seconds: float


class CheckpointFailed(Record, frozen=True, tag=True):
    epoch: int
    reason: str


class CheckpointsRemoved(Record, frozen=True, tag=True):
    """Old ones, beyond `keep_checkpoints`."""

    epoch: int
    names: tuple[str, ...]


class Traffic(OfRound, frozen=True, tag=True):
    """Bytes on the network since the client began, to peers and to the authority.

    `round_sent` counts what was sent since the round before (not in Warmup, when models travel),
    and `round_results` the client's own result times the peers it was sent to: the least possible.
    """

    sent: int
    received: int
    round_sent: int
    round_results: int


class Ended(Record, frozen=True, tag=True):
    reason: str
