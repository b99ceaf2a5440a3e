"""What happens to a rank (events) and what follows from it (effects): frozen values.

A `Request` is for the store. There is one at a time, and its answer comes back as `Answered`. Each
may be repeated when its answer was lost: what it writes is unique to the process, or only a hint.
"""

from enum import StrEnum

from folkmoot.core.iteration.record import Record
from folkmoot.core.machine import Effect as Effect
from folkmoot.core.machine import Event as Event
from folkmoot.core.machine import Refused as Refused
from folkmoot.core.machine import StateChanged as StateChanged
from folkmoot.core.machine import Tick as Tick

# Events.


class Started(Event, frozen=True, tag=True):
    """The process of this rank begins, for the first time or again."""


class Answered(Event, frozen=True, tag=True):
    """The store's answer to the request: a value for each key; sums in digits."""

    values: tuple[bytes | None, ...]


class Finished(Event, frozen=True, tag=True):
    """This rank is done with the present iteration; `progress` steps are in its training state.

    Before its arrival is sent, again: it arrives with this progress.
    """

    progress: int


class Silent(Event, frozen=True, tag=True):
    """These ranks are silent now, as far as this one can see; all others are not."""

    ranks: tuple[int, ...]


class Beaten(Event, frozen=True, tag=True):
    """This rank's heartbeat is not what it wrote last."""

    found: bytes | None


class Leave(Event, frozen=True, tag=True):
    """The process of this rank ends in an orderly way."""


AnyEvent = Started | Answered | Finished | Silent | Beaten | Leave | Tick

# Requests to the store.


class CompareSet(Effect, frozen=True, tag=True):
    key: str
    expected: bytes
    desired: bytes


class Add(Effect, frozen=True, tag=True):
    key: str
    amount: int


class Arrive(Effect, frozen=True, tag=True):
    """`CompareSet`, then, however that went, a note onto a list: a value, and all of the list.

    If the first went well, and fewer notes than `enough` lie there, nothing is left but to `Wait`
    for `wakeup`. Who carries this out may do that at once; its value then comes behind the two,
    and without `then` any value says that it came.
    """

    key: str
    expected: bytes
    desired: bytes
    arrived: str
    note: bytes
    enough: int
    wakeup: str
    ms: int
    then: str


class Decide(Effect, frozen=True, tag=True):
    """`CompareSet`, then, if its value is the desired one, `Set` the wakeups: that value first."""

    key: str
    expected: bytes
    desired: bytes
    wakeups: tuple[str, ...]


class GetMany(Effect, frozen=True, tag=True):
    keys: tuple[str, ...]


class Wait(Effect, frozen=True, tag=True):
    """The key's value as soon as it has one, None after `ms` milliseconds without.

    With `then`, the value of that key: the other one is a wakeup.
    """

    key: str
    ms: int
    then: str = ""


class Set(Effect, frozen=True, tag=True):
    key: str
    value: bytes


Request = CompareSet | Add | Arrive | Decide | GetMany | Wait | Set
# What a wakeup is set to: that it is there says all.
WOKEN = b"1"

# What else follows.


class Born(Effect, frozen=True, tag=True):
    """The rank has an incarnation; its heartbeat, as it stands, is to be moved from now on."""

    incarnation: int
    heartbeat: bytes


class Advanced(Effect, frozen=True, tag=True):
    """This rank takes part in a new iteration."""

    record: Record
    won: bool  # whether it is what this rank has proposed


class Excluded(Effect, frozen=True, tag=True):
    """Others went on without this rank; it waits to be in the next iteration."""

    record: Record


class Stalled(Effect, frozen=True, tag=True):
    """Nobody can go on: these ranks are waited for."""

    iteration: int
    missing: tuple[int, ...]
    why: str


class Housekeeping(Effect, frozen=True, tag=True):
    """Nothing waits for this: show the new number, and delete keys that no rank reads any more."""

    iteration: int
    delete: tuple[str, ...]


class Stopped(Effect, frozen=True, tag=True):
    """This process must not go on as this rank."""

    code: str
    reason: str


class Reason(StrEnum):
    """Why an event is refused, or why a rank stops."""

    WrongPhase = "WrongPhase"
    Fenced = "Fenced"
    RankTaken = "RankTaken"
    WorldMismatch = "WorldMismatch"
    StoreEmpty = "StoreEmpty"
    Garbage = "Garbage"
    Left = "Left"
