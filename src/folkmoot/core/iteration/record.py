"""What stands in the store, as bytes a person can read: decisions, arrivals, heartbeats.

A stranger may have written them: what does not read as what it should be is None.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from folkmoot.core.unreadable import UNREADABLE

HIGHEST = 10**15 - 1
Number = Annotated[int, Meta(ge=0, le=HIGHEST)]
DEAD, LEFT = "dead", "left"


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A rank that takes part, and which process of it."""

    rank: Number
    incarnation: Number


class Behind(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A member whose training state is not as far as that of others."""

    rank: Number
    progress: Number


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One decision: this iteration, these members. All of it stands in one value, or nothing."""

    iteration: Number
    progress: Number  # of the members who are furthest; the others take their state from those
    members: tuple[Member, ...]  # in the order of their ranks
    behind: tuple[Behind, ...]
    admit: tuple[Number, ...]  # alive but not here: the next iteration waits for them too

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(map(_rank_of, self.members))

    def has(self, rank: int, incarnation: int) -> bool:
        # Most often everybody is in it, each at its own place.
        if rank < len(self.members) and self.members[rank].rank == rank:
            return self.members[rank].incarnation == incarnation
        return Member(rank, incarnation) in self.members


# A record is written in two parts: what is new in each, and what mostly is as it was before.


class _Head(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    iteration: Number
    progress: Number


class _Who(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    members: tuple[Member, ...]
    behind: tuple[Behind, ...]
    admit: tuple[Number, ...]


_BETWEEN = b',"members":'
HEAD = b'{"iteration":%d,"progress":%d'  # as it is written, up to the members
_rank_of, _progress_of = attrgetter("rank"), attrgetter("progress")
_incarnation_of = attrgetter("incarnation")
_encode = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(_Head).decode
_decode_who = msgspec.json.Decoder(_Who).decode


def encode_record(record: Record) -> bytes:
    head = _encode(_Head(record.iteration, record.progress))
    return head[:-1] + b"," + _encode(_Who(record.members, record.behind, record.admit))[1:]


def members_text(register: bytes) -> bytes:
    """What stands behind the numbers."""
    _, between, who = register.partition(_BETWEEN)
    return between + who


def read_record(value: bytes | None, world: int) -> Record | None:
    head, _, who = (value or b"").partition(_BETWEEN)
    try:
        new, same = _decode_head(head + b"}"), _read_who(who, world)
    except UNREADABLE:
        return None
    if same is None:
        return None
    return Record(new.iteration, new.progress, same.members, same.behind, same.admit)


# The same in nearly all decisions of a job: with many members, most of what there is to read.
@lru_cache(maxsize=4)
def _read_who(text: bytes, world: int) -> _Who | None:
    """Members in the order of their ranks, and only ranks of this world; None if not so."""
    who = _decode_who(b'{"members":' + text)
    ranks = [-1, *map(_rank_of, who.members), world]
    if not who.members or any(a >= b for a, b in pairwise(ranks)):
        return None
    others = *map(_rank_of, who.behind), *who.admit
    return who if max(others, default=0) < world else None


class Arrival(NamedTuple):
    """A rank is done with an iteration: `iteration:incarnation:progress`; -1 before the first."""

    iteration: int
    incarnation: int
    progress: int

    def __bytes__(self) -> bytes:
        return b"%d:%d:%d" % (self.iteration, self.incarnation, self.progress)


_ARRIVAL = re.compile(rb"(-1|\d{1,15}):(\d{1,15}):(\d{1,15})")


def read_arrival(value: bytes | None) -> Arrival | None:
    match = _ARRIVAL.fullmatch(value or b"")
    return Arrival(*map(int, match.groups())) if match else None


class Note(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A rank has arrived: which process of it, and how far its training state is."""

    rank: Number
    incarnation: Number
    progress: Number


NOTE_END = b"],"
_decode_notes = msgspec.json.Decoder(list[Note]).decode


def encode_note(note: Note) -> bytes:
    """For the list of those who have arrived, where notes lie one behind the other."""
    return b"[%d,%d,%d" % (note.rank, note.incarnation, note.progress) + NOTE_END


def count_notes(listed: bytes | None) -> int:
    return (listed or b"").count(NOTE_END)


def read_notes(listed: bytes | None) -> dict[int, Note] | None:
    """By rank; of several processes of one, the newest. None if there is anything else, too."""
    try:
        notes = _decode_notes(b"[" + (listed or b"").removesuffix(b",") + b"]")
    except UNREADABLE:
        return None
    notes.sort(key=_incarnation_of)
    return {note.rank: note for note in notes}


def decision(iteration: int, notes: Collection[Note], admit: tuple[int, ...]) -> Record:
    """The iteration with those who left these notes."""
    there = sorted(notes, key=_rank_of)
    progress = max(map(_progress_of, there))
    members = tuple(Member(note.rank, note.incarnation) for note in there)
    behind = tuple(Behind(x.rank, x.progress) for x in there if x.progress < progress)
    return Record(iteration, progress, members, behind, admit)


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


# Of a process that lives; for who looks at all ranks' and needs to know no more.
is_beating = re.compile(rb"\d{1,15}:\d{1,15}").fullmatch
_HEARTBEAT = re.compile(rf"(\d{{1,15}}):(\d{{1,15}}|{DEAD}|{LEFT})".encode())


def read_heartbeat(value: bytes | None) -> Heartbeat | None:
    match = _HEARTBEAT.fullmatch(value or b"")
    return Heartbeat(int(match[1]), match[2].decode()) if match else None
