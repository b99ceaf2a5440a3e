"""What stands in the store, as bytes a person can read: decisions, arrivals, heartbeats.

A stranger may have written them: what does not read as what it should be is None.
"""

import re
from operator import attrgetter
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from folkmoot.core.unreadable import UNREADABLE

HIGHEST = 10**15 - 1
Number = Annotated[int, Meta(ge=0, le=HIGHEST)]
DEAD, LEFT = "dead", "left"


class Member(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A rank that takes part: which process of it, and how far its training state is."""

    rank: Number
    incarnation: Number
    progress: Number


_rank_of, _progress_of = attrgetter("rank"), attrgetter("progress")
_incarnation_of = attrgetter("incarnation")


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One decision: this iteration, these members. All of it stands in one value, or nothing."""

    iteration: Number
    members: tuple[Member, ...]
    admit: tuple[Number, ...]  # alive but not here: the next iteration waits for them too
    by: Number  # who decided it

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(map(_rank_of, self.members))

    @property
    def progress(self) -> int:
        """How far the members are who are furthest; the others take their state from those."""
        furthest: int = max(map(_progress_of, self.members))
        return furthest

    def furthest(self) -> tuple[int, ...]:
        progress = self.progress
        return tuple(member.rank for member in self.members if member.progress == progress)

    def has(self, rank: int, incarnation: int) -> bool:
        for member in self.members:
            if member.rank == rank:
                return member.incarnation == incarnation
        return False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


def encode_record(record: Record) -> bytes:
    return _encode(record)


def read_record(value: bytes | None, world: int) -> Record | None:
    try:
        record = _decode(value or b"")
    except UNREADABLE:
        return None
    ranks = (record.by, *record.ranks, *record.admit)
    return record if record.members and max(ranks) < world else None


class Arrival(NamedTuple):
    """A rank is done with an iteration: `iteration:incarnation:progress`; -1 before the first."""

    iteration: int
    incarnation: int
    progress: int

    def __bytes__(self) -> bytes:
        return f"{self.iteration}:{self.incarnation}:{self.progress}".encode()


_ARRIVAL = re.compile(rb"(-1|\d{1,15}):(\d{1,15}):(\d{1,15})")


def read_arrival(value: bytes | None) -> Arrival | None:
    match = _ARRIVAL.fullmatch(value or b"")
    return Arrival(*map(int, match.groups())) if match else None


_END = b"],"
_decode_notes = msgspec.json.Decoder(list[Member]).decode


def encode_note(member: Member) -> bytes:
    """For the pile of those who have arrived, where notes lie one behind the other."""
    return b"[%d,%d,%d" % (member.rank, member.incarnation, member.progress) + _END


def count_notes(pile: bytes | None) -> int:
    return (pile or b"").count(_END)


def read_notes(pile: bytes | None) -> dict[int, Member] | None:
    """By rank; of several processes of one, the newest. None if there is anything else, too."""
    try:
        members = _decode_notes(b"[" + (pile or b"").removesuffix(b",") + b"]")
    except UNREADABLE:
        return None
    members.sort(key=_incarnation_of)
    return {member.rank: member for member in members}


class Heartbeat(NamedTuple):
    """`incarnation:beats` while a process lives; `incarnation:dead` or `:left` after it."""

    incarnation: int
    beats: str

    @property
    def over(self) -> bool:
        return self.beats in (DEAD, LEFT)

    def next(self) -> "Heartbeat":
        return Heartbeat(self.incarnation, str(int(self.beats) + 1))

    def ended(self, how: str) -> "Heartbeat":
        return Heartbeat(self.incarnation, how)

    def __bytes__(self) -> bytes:
        return f"{self.incarnation}:{self.beats}".encode()


_HEARTBEAT = re.compile(rf"(\d{{1,15}}):(\d{{1,15}}|{DEAD}|{LEFT})".encode())


def read_heartbeat(value: bytes | None) -> Heartbeat | None:
    match = _HEARTBEAT.fullmatch(value or b"")
    return Heartbeat(int(match[1]), match[2].decode()) if match else None
