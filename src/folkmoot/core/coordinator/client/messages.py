"""What a client is told, and what its shell is asked to do."""

import msgspec

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import Share
from folkmoot.core.coordinator.client.ledger import Attested, Result
from folkmoot.core.coordinator.state import Checkpoint, Coordinator
from folkmoot.core.machine import Effect as Effect
from folkmoot.core.machine import Event as Event
from folkmoot.core.machine import StateChanged as StateChanged
from folkmoot.core.machine import Tick as Tick


class RoundEvent(Event, frozen=True, tag=True):
    """Something about a round of an epoch."""

    epoch: int
    height: int


class Saw(Event, frozen=True, tag=True):
    """The authority's state is now this."""

    state: Coordinator


class WasRefused(Event, frozen=True, tag=True):
    """The authority refused what we sent."""

    message: m.AnyEvent
    refused: m.Refused


class Unreachable(Event, frozen=True, tag=True):
    """These members cannot be connected to, and only these."""

    peers: tuple[bytes, ...]


class Loaded(Event, frozen=True, tag=True):
    """The model of this epoch is in memory."""

    epoch: int
    model_hash: bytes


class NotLoaded(Event, frozen=True, tag=True):
    """Nobody could give us the model of this epoch."""

    epoch: int


class Trained(Event, frozen=True, tag=True):
    """Our share is trained, and `result` stands for its bytes."""

    result: Result
    tokens_per_second: int = 0
    metadata: m.WitnessMetadata = m.WitnessMetadata()
    sketch: bytes = b""


class NotTrained(RoundEvent, frozen=True, tag=True):
    """Our share of this round could not be trained."""


class Offered(Event, frozen=True, tag=True):
    """A peer says that it trained its share."""

    result: Result


class Arrived(Event, frozen=True, tag=True):
    """The bytes of a result are here and pass every check; `sketch` stands for their direction."""

    result: Result
    sketch: bytes = b""


class Unavailable(Event, frozen=True, tag=True):
    """The maker of a result does not give it out, or gives what it did not commit to."""

    result: Result


class Learnt(RoundEvent, frozen=True, tag=True):
    """The results that `Learn` named are in the model."""

    model_hash: bytes


class Audited(RoundEvent, frozen=True, tag=True):
    """The results that `Audit` named were tried: whose passed, and whose failed."""

    passed: tuple[bytes, ...] = ()
    failed: tuple[bytes, ...] = ()


class Heard(Event, frozen=True, tag=True):
    """A peer answered that it is there."""

    peer: bytes


class HungUp(Event, frozen=True, tag=True):
    """The authority says that these clients' connections to it ended. They may be gone, or not."""

    peers: tuple[bytes, ...]


class Uploaded(Event, frozen=True, tag=True):
    """The model is stored, whole."""

    epoch: int
    location: str
    model_hash: bytes


class RoundEffect(Effect, frozen=True, tag=True):
    """Something to do about a round of an epoch."""

    epoch: int
    height: int


class Submit(Effect, frozen=True, tag=True):
    """Send a message to the authority."""

    message: m.AnyEvent


class Connect(Effect, frozen=True, tag=True):
    """Be connected to these peers (id and address) and to nobody else, in an epoch of so many."""

    peers: tuple[tuple[bytes, bytes], ...]
    places: int


class Load(Effect, frozen=True, tag=True):
    """Get the model: from peers, from storage, or by initialising it."""

    epoch: int
    checkpoint: Checkpoint
    model_hash: bytes
    holders: tuple[bytes, ...]


class ShareModel(Effect, frozen=True, tag=True):
    """Let peers have a copy of the model as it is now, before it learns anything."""

    epoch: int
    model_hash: bytes


class UnshareModel(Effect, frozen=True, tag=True):
    """Nobody needs the copy any more."""


class Learn(RoundEffect, frozen=True, tag=True):
    """Apply these results, in this order, then tell the hash of the model.

    `height` is the round that begins after it.
    """

    step: int
    results: tuple[Result, ...]
    samples: tuple[int, ...]  # behind each of them: a client of a larger share counts for more


class Train(RoundEffect, frozen=True, tag=True):
    step: int
    share: Share


class Trial(msgspec.Struct, frozen=True):
    """Whether a result lowers the loss on samples that its maker was assigned more than others'
    results of the same round do."""

    result: Result
    samples: Share
    others: tuple[Result, ...]


class Audit(RoundEffect, frozen=True, tag=True):
    """Try these results on the model as it is, which stays as it was."""

    trials: tuple[Trial, ...]


class Abandon(RoundEffect, frozen=True, tag=True):
    """Give up training a share: nobody can attest its result any more."""


class Evaluate(RoundEffect, frozen=True, tag=True):
    """Score the model on held-out text before it learns anything else: it is our turn."""

    step: int


class Tell(Effect, frozen=True, tag=True):
    """Tell the peers about our result."""

    result: Result


class Fetch(Effect, frozen=True, tag=True):
    """Get the bytes of a result from whoever has them; they must stand for this work."""

    result: Result
    step: int
    share: Share


class Ask(RoundEffect, frozen=True, tag=True):
    """Ask the peers for results of a round that the witnesses saw and that did not come.

    Those who answer did not make them: only what is in `attested` may be taken.
    """

    step: int
    shares: dict[bytes, Share]  # of the senders whose results are missing
    attested: Attested


class Probe(Effect, frozen=True, tag=True):
    """Ask these peers whether they are there."""

    peers: tuple[bytes, ...]


class Forget(RoundEffect, frozen=True, tag=True):
    """Drop the results of all earlier rounds: nobody can ask for them any more."""


class Upload(Effect, frozen=True, tag=True):
    """Store the model with this hash."""

    epoch: int
    step: int
    model_hash: bytes


class Save(Effect, frozen=True, tag=True):
    """Store a copy of the model as it is now, before it learns anything, while it goes on."""

    epoch: int
    step: int
    model_hash: bytes


class StopSaving(Effect, frozen=True, tag=True):
    """Nobody needs the copy any more: it is stored, or another one is to be."""


class Stop(Effect, frozen=True, tag=True):
    """Give up whatever of this epoch is under way, and drop its results."""

    epoch: int
