"""What goes into the machine, and what comes out.

A message of a client names its `sender`; the shell has checked the signature. The machine checks
the rest: that the sender is a member, and what it claims to be in this round.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from folkmoot.core.coordinator.committee import WitnessProof
from folkmoot.core.coordinator.config import Run
from folkmoot.core.coordinator.state import Left
from folkmoot.core.machine import Effect as Effect
from folkmoot.core.machine import Event as Event
from folkmoot.core.machine import Refused as Refused
from folkmoot.core.machine import StateChanged as StateChanged
from folkmoot.core.machine import Tick as Tick


class FromClient(Event, frozen=True, tag=True):
    """Anything that a client says."""

    sender: bytes


class Join(FromClient, frozen=True, tag=True):
    """A client wants to be part of the next epoch; it may already hold the model."""

    run_id: str
    model_hash: bytes = b""
    address: bytes = b""


class Ready(FromClient, frozen=True, tag=True):
    """A client has loaded the model."""

    epoch: int


# Evaluations that a witness may tell of, and characters of the name of one.
EVALUATIONS_MAX, EVALUATION_NAME_MAX = 16, 64
EvaluationName = Annotated[str, msgspec.Meta(max_length=EVALUATION_NAME_MAX)]


# Members that one client may say it cannot reach.
UNREACHABLE_MAX = 16


class WitnessMetadata(msgspec.Struct, frozen=True, array_like=True):
    """For people who watch a run. Told on, not kept."""

    tokens_per_second: float = 0.0
    loss: float = 0.0
    evaluations: Annotated[
        tuple[tuple[EvaluationName, float], ...], msgspec.Meta(max_length=EVALUATIONS_MAX)
    ] = ()


# Results that a witness may screen: more at once is no few liars.
SCREENED_MAX = 1024


class OpportunisticWitness(FromClient, frozen=True, tag=True):
    """A witness of round `height` attests the results of round `height - delay` and its model."""

    epoch: int
    height: int
    proof: WitnessProof
    participant_bloom: bytes
    broadcast_bloom: bytes
    broadcast_merkle: bytes
    model_hash: bytes
    metadata: WitnessMetadata = WitnessMetadata()
    #: Places, ascending, of clients whose results are here and must not be learnt.
    screened: Annotated[tuple[int, ...], msgspec.Meta(max_length=SCREENED_MAX)] = ()
    #: Places, ascending, of clients whose results the sender had to audit: those that lowered the
    #: loss on what they were assigned more than others' results do, and those that did not.
    passed: Annotated[tuple[int, ...], msgspec.Meta(max_length=SCREENED_MAX)] = ()
    failed: Annotated[tuple[int, ...], msgspec.Meta(max_length=SCREENED_MAX)] = ()


class OpportunisticCooldown(FromClient, frozen=True, tag=True):
    """A checkpointer has stored the agreed model, whole, at `location`."""

    epoch: int
    location: str
    model_hash: bytes


class HealthCheck(FromClient, frozen=True, tag=True):
    """A sign of life, the sender's measured speed, and the clients it considers unhealthy."""

    unhealthy: tuple[bytes, ...] = ()
    tokens_per_second: int = 0
    #: Members that the sender cannot connect to: for people who watch. Told on, not kept.
    unreachable: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=UNREACHABLE_MAX)] = ()


# Clients that a witness may call gone at a time: more at once is a fault of the network between.
GONE_MAX = 64


class CallGone(FromClient, frozen=True, tag=True):
    """A witness cannot reach these clients, and waits for them; what it said before is taken back.

    Of `equivocated` it holds two signed results for one share. `height` is of the round; -1 in
    Warmup, and in Cooldown one more than the last round's: a word counts only where it was said.
    """

    epoch: int
    height: int
    gone: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=GONE_MAX)] = ()
    equivocated: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=GONE_MAX)] = ()


class Withdraw(FromClient, frozen=True, tag=True):
    """A client leaves of its own will, or its connection is gone."""


class Pause(Event, frozen=True, tag=True):
    """The owner halts the run, after the epoch has drained."""


class Resume(Event, frozen=True, tag=True):
    """The owner lets a paused run go on."""


class Update(Event, frozen=True, tag=True):
    """The owner changes the configuration; `changes` says what may change when."""

    run: Run


ClientMessage = (
    Join | Ready | OpportunisticWitness | OpportunisticCooldown | HealthCheck | CallGone | Withdraw
)
OwnerMessage = Pause | Resume | Update
AnyEvent = Tick | ClientMessage | OwnerMessage


class Reason(StrEnum):
    """Why a message was refused."""

    WrongId = "its sender's identity is not 32 bytes"
    WrongAddress = "its address is too long"
    WrongRun = "it names another run"
    AlreadyMember = "its sender is a member of this epoch"
    RunFull = "the run has all the clients it may have"
    Finished = "the run is finished"
    NotAMember = "its sender is not a member of this epoch"
    WrongIndex = "the index in its proof is not its sender's"
    WrongState = "the run is in a state that does not take it"
    WrongEpoch = "it belongs to another epoch"
    WrongRound = "it belongs to another round"
    Duplicate = "its sender has said so already"
    NotAWitness = "its sender is not a witness of this round"
    WrongProof = "its proof does not follow from the round's seed"
    WrongBloom = "its filters are not of the size this run uses"
    FullBloom = "its filters hold more than the run has clients"
    WrongHash = "its hashes are not 32 bytes"
    HealthyClient = "it accuses a client whom the witnesses' score does not confirm unhealthy"
    NotACheckpointer = "its sender is not a checkpointer of this cooldown"
    WrongModel = "the model it names is not the one a quorum agreed on"
    WrongLocation = "the location it names is not one this run stores to"
    NotHalted = "members of an epoch compute with what it changes: pause the run first"
    Trained = "the model was trained already: what it is made of stays"
    AlreadyPausing = "the run is paused or pausing already"
    NotPausing = "the run is neither paused nor pausing"
    BadConfig = "the configuration breaks a rule"
    Expelled = "its sender was expelled from this run"
    Ejected = "its sender was ejected for the results it sent, and may come back in a later epoch"
    WrongScreening = (
        "the run does not screen, or these are not places of this epoch in ascending order"
    )
    WrongAudit = (
        "its sender was not given these results to audit, or they are not in ascending order"
    )
    UnknownClient = "it accuses a client that is not in this epoch"


def refusal(reason: Reason) -> Refused:
    return Refused(reason.name, reason.value)


class Updated(Effect, frozen=True, tag=True):
    """The owner changed the configuration."""

    changes: tuple[str, ...]


class ClientJoined(Effect, frozen=True, tag=True):
    """It waits for the next epoch."""

    id: bytes


class ClientRemoved(Effect, frozen=True, tag=True):
    id: bytes
    why: Left


class PeersUnreachable(Effect, frozen=True, tag=True):
    """A client says that it cannot connect to these members."""

    id: bytes
    peers: tuple[bytes, ...]


class EpochStarted(Effect, frozen=True, tag=True):
    """Its clients may begin to load the model."""

    epoch: int
    clients: int


class RoundStarted(Effect, frozen=True, tag=True):
    epoch: int
    height: int
    step: int
    samples: int


class WitnessAccepted(Effect, frozen=True, tag=True):
    id: bytes
    height: int
    metadata: WitnessMetadata


class RoundJudged(Effect, frozen=True, tag=True):
    """Results of a round are settled: apply what a quorum attested; the rest is owed."""

    height: int
    attested: int  # samples
    owed: int  # samples
    screened: int = 0  # results that a quorum of witnesses would not have learnt


class ResultsAudited(Effect, frozen=True, tag=True):
    """A quorum of the auditors of each came to a verdict."""

    height: int  # of the round that was audited
    passed: int
    failed: int


class EpochEnded(Effect, frozen=True, tag=True):
    epoch: int
    trained: bool


class CheckpointWanted(Effect, frozen=True, tag=True):
    """The elected checkpointers store the model with this hash."""

    epoch: int
    checkpointers: int
    model_hash: bytes


class CheckpointStored(Effect, frozen=True, tag=True):
    location: str
    step: int


class Rewound(Effect, frozen=True, tag=True):
    """Nobody holds the newest model: training goes on from the stored one."""

    from_step: int
    to_step: int
