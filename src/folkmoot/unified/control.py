"""What a PrimeMaster and its actors say to each other.

An actor tells its whole `Status` whenever it changes and whenever it reaches a master: so nothing
is lost while there is none, and a new master knows all at once. Between changes it sends `Beat`s.
What a master tells carries its epoch; an actor that has seen a higher one refuses it.
"""

from typing import Any

import msgspec

from folkmoot.core.job import JobSpec, Stage
from folkmoot.unified.substrate import OfActor

#: The names by which messages travel as remote methods, and who is called.
MASTER, TELL, OBEY = "master", "tell", "obey"


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """What an actor's process is made with."""

    spec: JobSpec
    actor: str
    incarnation: int
    node: str
    secret: bytes
    # Where the master is reached; "" is told later.
    master: str
    # Where this actor lets others call it.
    listen: str
    # Seconds after which it ends if no master is found.
    alone: float


# An actor tells.


class Verdict(msgspec.Struct, frozen=True):
    """What a sub-master found when it checked its workers: those that are unfit, and why."""

    generation: int
    unfit: dict[str, str] = {}


class Status(OfActor, frozen=True, kw_only=True, tag=True):
    stage: Stage = Stage.INIT
    pid: int = 0
    # Where others call it, from READY on.
    address: str = ""
    # The newest start of its role that it took part in.
    generation: int = 0
    verdict: Verdict | None = None
    # What `start` returned, or how it failed.
    result: str = ""
    how: str = ""
    traceback: str = ""
    exit_code: int = 0


class Beat(OfActor, frozen=True, tag=True):
    """It lives; `progress` counts the signs of progress that its code gave."""

    progress: int = 0
    numbers: dict[str, Any] = msgspec.field(default_factory=dict)


# A master tells.


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """A master heard the actor's status."""

    epoch: int


class Membership(msgspec.Struct, frozen=True, tag=True):
    """Who is in the job now: the workers of each role by rank, and where actors are reached."""

    epoch: int
    roles: dict[str, tuple[str, ...]]
    addresses: dict[str, str]


class Begin(msgspec.Struct, frozen=True, tag=True):
    """Start, together with `world`; a sub-master that runs is told of its new workers so."""

    epoch: int
    generation: int
    world: tuple[str, ...]


class Examine(msgspec.Struct, frozen=True, tag=True):
    """Check the workers of `world`."""

    epoch: int
    generation: int
    world: tuple[str, ...]


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Stop, and end the process."""

    epoch: int


Told = Status | Beat
Order = Welcome | Membership | Begin | Examine | Leave
encode = msgspec.msgpack.Encoder(enc_hook=repr).encode
decode_told = msgspec.msgpack.Decoder(Told).decode
decode_order = msgspec.msgpack.Decoder(Order).decode
decode_birth = msgspec.msgpack.Decoder(Birth).decode
