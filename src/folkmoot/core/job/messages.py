"""What happens to a job (events) and what follows from it (effects): frozen values.

Events are what the journal keeps; effects are what the substrate does and what the event log shows.
An actor's process is named by `actor` and `incarnation`: what one of an older incarnation says is
refused, and an effect on it never reaches a newer one. Carrying out an effect twice is the same as
once. `at` is when something was seen, in the milliseconds of the machine's clock.
"""

from enum import StrEnum

import msgspec

from folkmoot.core.job.placement import Bundle
from folkmoot.core.machine import Effect as Effect
from folkmoot.core.machine import Event as Event
from folkmoot.core.machine import Refused as Refused
from folkmoot.core.machine import StateChanged as StateChanged
from folkmoot.core.machine import Tick as Tick

# Events.


class StartAsked(Event, frozen=True, tag=True):
    """The owner wants the job to begin."""


class StopAsked(Event, frozen=True, tag=True):
    """The owner wants it to end. `exit_code` is what the job then ends with."""

    reason: str = "stop was asked for"
    exit_code: int = 143


class ScaleAsked(Event, frozen=True, tag=True):
    """A role should have `total` workers."""

    role: str
    total: int


class Placed(Event, frozen=True, tag=True):
    """These workers of a gang have a place: the node of each, by actor."""

    gang: str
    nodes: dict[str, str]


class Unplaceable(Event, frozen=True, tag=True):
    """A gang can never be placed."""

    gang: str
    reason: str


class ActorReady(Event, frozen=True, tag=True):
    """Its process is there, set up and checked itself."""

    actor: str
    incarnation: int
    node: str = ""


class ChildrenChecked(Event, frozen=True, tag=True):
    """The sub-master of a role has checked its workers; those in `bad` are not fit."""

    role: str
    incarnation: int  # of the sub-master
    generation: int
    bad: tuple[str, ...] = ()
    reason: str = ""
    at: int = 0


class Report(Event, frozen=True, tag=True):
    """What stage an actor is in: RUNNING (its `start` was called) or FINISH (it came back)."""

    actor: str
    incarnation: int
    stage: str
    generation: int = 0
    result: str = ""


class Raised(Event, frozen=True, tag=True):
    """The user's code raised; the process may live on. `how` is one line for people."""

    actor: str
    incarnation: int
    how: str
    at: int
    traceback: str = ""
    exit_code: int = 1


class Died(Event, frozen=True, tag=True):
    """A process is gone, as was expected or not."""

    actor: str
    incarnation: int
    how: str
    at: int


class Silent(Event, frozen=True, tag=True):
    """A process is there, and gave no sign of life or progress for too long."""

    actor: str
    incarnation: int
    how: str
    at: int


class NodeGone(Event, frozen=True, tag=True):
    """A node is lost with every process that has its place there or said so when it was ready.

    A sub-master that had not said so yet has `Died`.
    """

    node: str
    at: int


class Living(msgspec.Struct, frozen=True):
    actor: str
    incarnation: int


class MasterRestarted(Event, frozen=True, tag=True):
    """A new PrimeMaster looked for processes, and these are there. All others are not.

    It is the first event that the new one takes: what it looks for must not change meanwhile.
    """

    living: tuple[Living, ...]
    at: int


AnyEvent = (
    StartAsked
    | StopAsked
    | ScaleAsked
    | Placed
    | Unplaceable
    | ActorReady
    | ChildrenChecked
    | Report
    | Raised
    | Died
    | Silent
    | NodeGone
    | MasterRestarted
    | Tick
)


# Effects for the substrate.


class Place(Effect, frozen=True, tag=True):
    """Find a place for these workers of a gang, on none of the nodes in `avoid`.

    `least` bundles at once or none; the others when there is room. Every answer is a `Placed`, or
    `Unplaceable`. A later `Place` of the same gang takes the place of this one.
    """

    gang: str
    strategy: str
    bundles: tuple[Bundle, ...]
    least: int
    avoid: tuple[str, ...] = ()


class Create(Effect, frozen=True, tag=True):
    """Make the process of this incarnation, on this node ("" is anywhere)."""

    actor: str
    incarnation: int
    node: str


class Check(Effect, frozen=True, tag=True):
    """Have the sub-master check its workers: `check_child`."""

    role: str
    incarnation: int  # of the sub-master
    generation: int
    world: tuple[str, ...]


class Start(Effect, frozen=True, tag=True):
    """Call `start`. A sub-master that runs already is told of its workers' new generation so."""

    actor: str
    incarnation: int
    generation: int
    world: tuple[str, ...]  # the workers of its role that take part, by rank


class Stop(Effect, frozen=True, tag=True):
    """Call `stop`, and end the process."""

    actor: str
    incarnation: int


class Kill(Effect, frozen=True, tag=True):
    """End the process of this incarnation at once, whatever it does. `Died` says that it is so."""

    actor: str
    incarnation: int
    why: str


class Release(Effect, frozen=True, tag=True):
    """Give back what a gang was placed on."""

    gang: str


class Finish(Effect, frozen=True, tag=True):
    """The job is over, and nothing of it is left."""

    exit_code: int
    reason: str


# Effects that tell.


class ActorChanged(Effect, frozen=True, tag=True):
    """An actor went from one stage to another."""

    actor: str
    incarnation: int
    before: str
    after: str
    why: str = ""


class Blamed(Effect, frozen=True, tag=True):
    """A first cause was found and charged; `instead_of` names who was blamed for it before."""

    actor: str
    incarnation: int
    node: str
    kind: str
    how: str
    at: int
    instead_of: str = ""


class Collateral(Effect, frozen=True, tag=True):
    """This actor failed because another had; it is not charged."""

    actor: str
    incarnation: int
    how: str
    because_of: str


class Recovering(Effect, frozen=True, tag=True):
    """What starts anew for a failure, and how wide that reaches."""

    actor: str
    domain: str
    actors: tuple[str, ...]


class Delayed(Effect, frozen=True, tag=True):
    """The next process of one that failed so often, one soon after the other, waits so long."""

    actor: str
    seconds: float
    in_a_row: int


class Formed(Effect, frozen=True, tag=True):
    """A role's workers start together as this generation."""

    role: str
    generation: int
    world: tuple[str, ...]


class Reason(StrEnum):
    """Why an event was refused.

    A process that hears UnknownActor, OldIncarnation or Gone does not count, and ends itself.
    """

    UnknownActor = "UnknownActor"
    UnknownRole = "UnknownRole"
    UnknownGang = "UnknownGang"
    OldIncarnation = "OldIncarnation"
    Gone = "Gone"
    OldGeneration = "OldGeneration"
    NotNow = "NotNow"
    OutOfBounds = "OutOfBounds"
