"""One record of a run's log: how it is made, and how everybody checks it. Pure.

The log of a run in a store is a chain of records. A record says at what time of the run which
letters were taken, and the digest of what the run is after it. The rules:

- Given where the run was, a time and letters, what follows is computed by everyone with the same
  function (`fold`): the letters in the order of their slots, then a tick, then the phases that are
  over as they begin. Randomness is `next_seed`. So a record can be wrong, but it cannot lie.
- A record names the digest of the one before it, and is signed by a key that may take part. It must
  have a reason: a letter, a slot given up, or a tick that is due.
- Time does not go back, and no record moves it by more than `MAX_STEP`. Whether it is too early by
  the clock of the reader is not asked here (`clock`).
- Every `SPAN` records the whole is kept as a snapshot. Each record carries the digest of the newest
  one before it, so that somebody who comes late can begin there.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from folkmoot.authority.store.genesis import Genesis
from folkmoot.authority.store.kv import MAX_VALUE
from folkmoot.authority.store.mail import BadMail, Mail, Message, read_mail
from folkmoot.authority.store.mailbox import Mailbox
from folkmoot.authority.store.seed import next_seed
from folkmoot.authority.store.signed import seal, unseal
from folkmoot.core import coordinator
from folkmoot.core.coordinator import TABLE, Coordinator
from folkmoot.core.coordinator import messages as m
from folkmoot.core.machine import Outcome
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.host.signing import Identity, Unauthenticated

# Records from one snapshot to the next.
SPAN = 64
# The most milliseconds a record moves the run's time. Who follows a run speaks more often.
MAX_STEP = 600_000
# The most bytes of letters in one record.
MAX_LETTERS = 3 * MAX_VALUE // 4


class Invalid(Exception):
    """What is no record, or does not follow; the message says why, as "it ..."."""


class Unfit(Invalid):
    """A letter on which the run's machine fails. It fails for everybody: the letter is none."""

    def __init__(self, slot: int, error: Exception) -> None:
        super().__init__(f"the run cannot take the letter in slot {slot}: {error!r}")
        self.slot = slot


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    before: bytes  # digest of the record before; of the genesis in the first
    time: int  # of the run, in milliseconds
    mail: tuple[Mail, ...]
    given_up: tuple[int, ...]  # slots that were empty for too long, or held no good letter
    after: bytes  # digest of the snapshot that this record leads to
    base: bytes  # digest of the newest kept snapshot before it


class Snapshot(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All that is needed to go on from a record."""

    version: int
    time: int
    mailbox: Mailbox
    state: msgspec.Raw


class Place(NamedTuple):
    """Somewhere in the log that was checked: a record and what the run is after it."""

    data: bytes  # the record as it is in the store
    record: Record
    by: bytes
    mailbox: Mailbox
    state: Coordinator

    @property
    def version(self) -> int:
        return self.record.version

    @property
    def time(self) -> int:
        return self.record.time

    @property
    def digest(self) -> bytes:
        return sha256(self.data).digest()


class Step(NamedTuple):
    """What a record did."""

    place: Place
    effects: tuple[m.Effect, ...]
    answers: dict[int, m.Refused | None]  # by slot


class Folded(NamedTuple):
    state: Coordinator
    mailbox: Mailbox
    effects: tuple[m.Effect, ...]
    answers: dict[int, m.Refused | None]


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(Record).decode
_decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode


# What follows from what.


def due(at: Place) -> int | None:
    """When, in the run's time, somebody must make a record even if no letter comes."""
    return coordinator.next_tick(at.state, at.time)


def fold(
    genesis: Genesis,
    at: Place,
    time: int,
    letters: Sequence[tuple[int, Message]],
    given_up: Sequence[int] = (),
) -> Folded:
    """What the run is after these letters at this time; raises `Invalid`."""
    if not at.time <= time <= at.time + MAX_STEP:
        raise Invalid(f"it moves the run's time from {at.time} to {time}")
    if not letters and not given_up and not _is_due(at, time):
        raise Invalid("it has no reason: nothing is in it and nothing is due")
    try:
        mailbox = at.mailbox.without([slot for slot, _ in letters], given_up)
    except ValueError as error:
        raise Invalid(str(error)) from None
    state = at.state
    effects: list[m.Effect] = []
    answers: dict[int, m.Refused | None] = {}
    for slot, message in letters:
        try:
            outcome = _apply(genesis, state, message, time)
        except Exception as error:
            raise Unfit(slot, error) from error
        state = outcome.state
        answers[slot] = outcome.refused
        effects += outcome.effects
    for _ in TABLE:
        before = state
        state, given = _apply(genesis, state, m.Tick(), time)
        effects += given
        next_due = coordinator.next_tick(state, time)
        if state is before or next_due is None or next_due > time:
            break
    return Folded(state, mailbox, tuple(effects), answers)


def _is_due(at: Place, time: int) -> bool:
    when = due(at)
    return when is not None and when <= time


def _apply(
    genesis: Genesis, state: Coordinator, event: m.AnyEvent, time: int
) -> Outcome[Coordinator]:
    return coordinator.apply(state, event, time, next_seed(genesis.digest, state))


# Records.


def first_record(genesis: Genesis, identity: Identity) -> Place:
    """The record with which the log begins."""
    begun = _begun(genesis)
    digest = sha256(begun).digest()
    record = Record(0, genesis.digest, 0, (), (), digest, digest)
    return _place(_sealed(genesis, identity, record), record, identity.public, begun)


def next_record(
    genesis: Genesis,
    identity: Identity,
    at: Place,
    time: int,
    letters: Sequence[tuple[Mail, Message]],
    given_up: Sequence[int] = (),
) -> Step:
    """A record that follows `at`; raises `Invalid`."""
    folded = fold(genesis, at, time, [(mail.slot, said) for mail, said in letters], given_up)
    version = at.version + 1
    after = sha256(_snapshot(version, time, folded.mailbox, folded.state)).digest()
    mail = tuple(mail for mail, _ in letters)
    record = Record(version, at.digest, time, mail, tuple(given_up), after, _base(at))
    data = _sealed(genesis, identity, record)
    if len(data) > MAX_VALUE:
        raise Invalid(f"it is larger than {MAX_VALUE:,} bytes")
    place = Place(data, record, identity.public, folded.mailbox, folded.state)
    return Step(place, folded.effects, folded.answers)


def read_record(genesis: Genesis, data: bytes) -> tuple[Record, bytes]:
    """(record, who made it), by its own bytes alone; raises `Invalid`."""
    if len(data) > MAX_VALUE:
        raise Invalid(f"it is larger than {MAX_VALUE:,} bytes")
    try:
        key, payload = unseal(data, b"folkmoot record 1", genesis.digest)
        record = _decode(payload)
    except Unauthenticated as error:
        raise Invalid(str(error)) from None
    except UNREADABLE as error:
        raise Invalid(f"it is not a record: {error}") from error
    if not genesis.access.member(key):
        raise Invalid("it was made by a key that is not on the run's allow-list")
    return record, key


def verify(genesis: Genesis, at: Place, data: bytes) -> Step:
    """What a record that follows `at` does; raises `Invalid`."""
    return verify_read(genesis, at, data, *read_record(genesis, data))


def verify_read(genesis: Genesis, at: Place, data: bytes, record: Record, by: bytes) -> Step:
    """The same, of one that was read before: a signature takes longer than most records."""
    if (record.version, record.before) != (at.version + 1, at.digest):
        raise Invalid("it does not follow the record before")
    if record.base != _base(at):
        raise Invalid("it names another snapshot to begin with")
    try:
        letters = [(mail.slot, read_mail(genesis, mail)) for mail in record.mail]
    except BadMail as error:
        raise Invalid(f"it takes a letter that is none: {error}") from None
    folded = fold(genesis, at, record.time, letters, record.given_up)
    after = sha256(_snapshot(record.version, record.time, folded.mailbox, folded.state)).digest()
    if record.after != after:
        raise Invalid("it leads to another state than the one that follows")
    place = Place(data, record, by, folded.mailbox, folded.state)
    return Step(place, folded.effects, folded.answers)


# Snapshots.


def snapshot(at: Place) -> bytes:
    """The bytes whose digest is `at.record.after`."""
    return _snapshot(at.version, at.time, at.mailbox, at.state)


def is_kept(version: int) -> bool:
    """Whether the snapshot of this record is kept; the first follows from the genesis."""
    return version > 0 and version % SPAN == 0


def base_version(version: int) -> int:
    """The record whose snapshot the record `version` names as its base."""
    return max(version - 1, 0) // SPAN * SPAN


def begin(genesis: Genesis, data: bytes, kept: bytes | None = None) -> Place:
    """The place of a record whose snapshot is `kept`, believed; of the first one with none."""
    record, by = read_record(genesis, data)
    if kept is None and record.version == 0 and record.before == genesis.digest:
        kept = _begun(genesis)
    if kept is None or sha256(kept).digest() != record.after:
        raise Invalid("it does not belong to its snapshot")
    return _place(data, record, by, kept)


def _place(data: bytes, record: Record, by: bytes, kept: bytes) -> Place:
    try:
        whole = _decode_snapshot(kept)
        state = coordinator.decode(bytes(whole.state))
    except UNREADABLE as error:
        raise Invalid(f"its snapshot cannot be read: {error}") from error
    if (whole.version, whole.time) != (record.version, record.time):
        raise Invalid("its snapshot is of another record")
    return Place(data, record, by, whole.mailbox, state)


def _begun(genesis: Genesis) -> bytes:
    return _snapshot(0, 0, Mailbox(), coordinator.create(genesis.run, 0))


def _base(at: Place) -> bytes:
    """The base of the record after `at`."""
    return at.record.after if at.version % SPAN == 0 else at.record.base


def _snapshot(version: int, time: int, mailbox: Mailbox, state: Coordinator) -> bytes:
    whole = Snapshot(version, time, mailbox, msgspec.Raw(coordinator.encode(state)))
    return _encode(whole)


def _sealed(genesis: Genesis, identity: Identity, record: Record) -> bytes:
    return seal(identity, _encode(record), b"folkmoot record 1", genesis.digest)
