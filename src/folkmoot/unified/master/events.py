"""What a PrimeMaster writes into its event log, beside the effects of its machine."""

from typing import Any

from folkmoot.host.event_log import Record


class MasterBegan(Record, frozen=True, tag=True):
    """A master took the job, for the first time (`resumed` is false) or from one before it."""

    epoch: int
    pid: int
    resumed: bool
    living: tuple[str, ...]


class ActorCreated(Record, frozen=True, tag=True):
    actor: str
    incarnation: int
    node: str
    pid: int


class ActorEnded(Record, frozen=True, tag=True):
    actor: str
    incarnation: int
    how: str


class ActorRaised(Record, frozen=True, tag=True):
    """The user's code raised."""

    actor: str
    incarnation: int
    how: str
    traceback: str


class ActorHangs(Record, frozen=True, tag=True):
    """An actor shows no progress; its stacks say where it is."""

    actor: str
    incarnation: int
    how: str
    stacks: str


class Progressed(Record, frozen=True, tag=True):
    """The newest numbers that a worker told with `progress()`."""

    actor: str
    incarnation: int
    numbers: dict[str, Any]


class NodeLost(Record, frozen=True, tag=True):
    node: str


class MasterStopped(Record, frozen=True, tag=True):
    """The job is over and everything was given back; or this master cannot go on."""

    epoch: int
    why: str
