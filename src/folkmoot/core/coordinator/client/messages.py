"""What a client is told, and what its shell is asked to do."""

import msgspec

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import Share
from folkmoot.core.coordinator.client.ledger import Result
from folkmoot.core.coordinator.state import Checkpoint, Coordinator


class Event(msgspec.Struct, frozen=True):
    """Anything that a client is told."""


class Saw(Event, frozen=True):
    """The authority's state is now this."""

    state: Coordinator


class Loaded(Event, frozen=True):
    """The model of this epoch is in memory."""

    epoch: int
    model_hash: bytes


class NotLoaded(Event, frozen=True):
    """Nobody could give us the model of this epoch."""

    epoch: int


class Trained(Event, frozen=True):
    """Our share is trained, and `result` stands for its bytes."""

    result: Result
    tokens_per_second: int = 0
    metadata: m.WitnessMetadata = m.WitnessMetadata()


class NotTrained(Event, frozen=True):
    """Our share of this round could not be trained."""

    epoch: int
    height: int


class Offered(Event, frozen=True):
    """A peer says that it trained its share."""

    result: Result


class Arrived(Event, frozen=True):
    """The bytes of a result are here and pass every check."""

    result: Result


class Learnt(Event, frozen=True):
    """The results that `Learn` named are in the model."""

    epoch: int
    height: int
    model_hash: bytes


class Uploaded(Event, frozen=True):
    """The model is stored, whole."""

    epoch: int
    location: str


class WasRefused(Event, frozen=True):
    """The authority refused what we sent."""

    message: m.AnyEvent
    refused: m.Refused


class Alarm(Event, frozen=True):
    """Time has passed."""


class Action(msgspec.Struct, frozen=True):
    """Anything that a client's shell is asked to do."""


class Submit(Action, frozen=True):
    """Send a message to the authority."""

    message: m.AnyEvent


class Load(Action, frozen=True):
    """Get the model: from peers, from storage, or by initialising it."""

    epoch: int
    checkpoint: Checkpoint
    model_hash: bytes
    holders: tuple[bytes, ...]


class Learn(Action, frozen=True):
    """Apply these results, in this order, then tell the hash of the model. May be none."""

    epoch: int
    height: int  # the round that begins after it
    step: int
    results: tuple[Result, ...]


class Train(Action, frozen=True):
    epoch: int
    height: int
    step: int
    share: Share


class Tell(Action, frozen=True):
    """Tell the peers about our result."""

    result: Result


class Fetch(Action, frozen=True):
    """Get the bytes of a result from whoever has them."""

    result: Result


class Ask(Action, frozen=True):
    """Ask the peers for results of these senders in a round; the witnesses saw them."""

    epoch: int
    height: int
    senders: tuple[bytes, ...]


class Upload(Action, frozen=True):
    """Store the model with this hash."""

    epoch: int
    step: int
    model_hash: bytes


class Abandon(Action, frozen=True):
    """Give up training a share: nobody can attest its result any more."""

    epoch: int
    height: int


class Stop(Action, frozen=True):
    """Give up whatever training, loading or storing of this epoch is under way."""

    epoch: int
