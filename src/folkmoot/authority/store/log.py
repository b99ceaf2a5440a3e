"""A run's log in a store, as one client follows it, moves it and mends it.

- The register holds the newest record and moves by compare-and-set alone. `look` goes on to what it
  holds, checking every record on the way; `make` tries to move it. Whoever loses goes on from what
  the winner made.
- A record is published (its `ready` key, its snapshot if one is due) by whoever won it and, before
  that, by whoever builds on it. So a winner that dies between two steps leaves nothing undone that
  the next one needs.
- What is in the register and does not verify is replaced by the newest record that is known here.
  So is nothing, after a store was restarted empty or a stranger deleted the key: then all that
  somebody who comes late needs is written again.
- A client objects only to what it could have seen happen. One that slept, or has just come, begins
  anew with what the register says, if that holds together.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from itertools import count

from folkmoot.authority.store import keys
from folkmoot.authority.store.chain import KEPT, Chain, Unlinked
from folkmoot.authority.store.clock import RunClock
from folkmoot.authority.store.feed import open_feed
from folkmoot.authority.store.genesis import Genesis
from folkmoot.authority.store.kv import Store
from folkmoot.authority.store.kv.register import Register
from folkmoot.authority.store.letters import Letters
from folkmoot.authority.store.record import (
    MAX_STEP,
    Invalid,
    Place,
    Step,
    Unfit,
    base_version,
    begin,
    due,
    first_record,
    is_kept,
    next_record,
    read_record,
    snapshot,
)
from folkmoot.core.identity import short
from folkmoot.host.signing import Identity

logger = logging.getLogger(__name__)

PIECE = 512 * 1024
MAX_PIECES = 512
# Who has looked at least every `DOZE` seconds for `AWAKE` seconds would have seen what happened.
DOZE, AWAKE = 6.0, 12.0
# The weight of the newest time that it took to move the register.
RECENT = 0.2
# How many old records are removed together.
CLEANED = 16
# How often a record from the future is put back before it is believed: we may be the one who errs.
OBJECTIONS = 2
# Seconds that others have to mend what is broken before somebody who has just come gives up.
MENDING, RETRY = 5.0, 0.1
# Seconds for which nothing more is said of mending: one who spoils a register does it again.
QUIET = 10.0


class Damaged(Exception):
    """The log cannot be followed, and nobody is there who knows how it went on."""


class Log:
    """The log of one run. For one thread; begins with `begin`."""

    def __init__(
        self,
        store: Store,
        genesis: Genesis,
        identity: Identity,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.genesis, self._identity, self._monotonic = genesis, identity, monotonic
        self.letters = Letters(genesis, monotonic)
        self.clock = RunClock(monotonic)
        self._chain: Chain
        # The newest versions whose key, and whose snapshot, we know to be there.
        self._published = self._kept_last = -1
        self._looked = self._awake = monotonic()
        self.cost = 0.0  # about how many seconds it takes to move the register
        self._objections = 0
        self._told = -QUIET  # when we last said that something was mended
        self.connect(store)

    def connect(self, store: Store) -> None:
        """Use another connection."""
        self.store = store
        self.feed = open_feed(store)
        self._register = Register(store, keys.RECORD, keys.READY)

    @property
    def newest(self) -> Place:
        return self._chain.newest

    # Following.

    def begin(self) -> None:
        """Find the newest record and begin there; raises `Damaged`."""
        deadline = self._monotonic() + MENDING
        while True:
            data = self._register.read()
            try:
                if data is None:
                    raise Invalid("it is gone")
                self._begin_at(data)
                return
            except Invalid as error:
                if self._monotonic() >= deadline:
                    raise Damaged(
                        f"the newest record of run '{self.genesis.run.run_id}' cannot be read"
                        f" ({error}), and nobody who knows it mends it: start a client that was"
                        " there, or create the run anew under another name"
                    ) from error
            if data is None and self.store.get(keys.ready(1)) is None:
                first = first_record(self.genesis, self._identity)  # its creator died there
                self._register.advance(None, first.data, 0)
            else:
                time.sleep(RETRY)  # nothing tells when somebody has mended it

    def look(self) -> tuple[list[Step], bool]:
        """Go on to what the register holds: the steps, and whether some were skipped."""
        now = self._monotonic()
        if now - self._looked > DOZE:
            self._awake = now
        self._looked = now
        data = self.feed.register()
        if data == self.newest.data:
            self.feed.in_vain(self.newest.version)
            return [], False
        try:
            if data is None:
                raise Invalid("it is gone")
            steps = self._chain.follow(data, self._fetch)
        except Unlinked as error:
            if data and now - self._awake < AWAKE and self._began_anew(data):
                return [], True
            self._mend(data, error)
            return [], False
        except Invalid as error:
            steps = self._undecided()
            if not steps:
                self._mend(data, error)
        return self._took(steps), False

    def wait(self, seconds: float) -> bool:
        """Whether the next record came within so many seconds, by what is said."""
        return self.feed.wait_for_record(self.newest.version + 1, self.newest.data, seconds)

    def wait_for_letter(self, seconds: float) -> bool:
        """Whether a letter came within so many seconds that was not seen, or perhaps a record."""
        mailbox = self.newest.mailbox
        slot, news = self.letters.first_unseen(mailbox), partial(self.letters.is_news, mailbox)
        return self.feed.wait_for_letter(slot, news, self.newest.data, seconds)

    def wait_for_letters(self, expected: int, seconds: float) -> None:
        """Until there are so many urgent letters, as far as their slots tell; behind the first."""
        mailbox = self.newest.mailbox
        last = self.letters.last_of(mailbox, expected)
        if last > self.letters.first_unseen(mailbox):
            self.feed.wait_for_letter(last, lambda slot: slot >= last, self.newest.data, seconds)

    def _took(self, steps: list[Step]) -> list[Step]:
        if steps and not self._believes(steps[-1].place):
            return []
        if steps and steps[0].place.version <= self.newest.version:
            self.feed.doubt()  # another line: letters that were taken lie there again
        for step in steps:
            self._chain.add(step)
        if steps:
            self.letters.forget_taken(self.newest.mailbox)
            self._objections = 0
            self.clock.saw(self.newest.time)
        return steps

    def _believes(self, ahead: Place) -> bool:
        if self.clock.plausible(ahead.time):
            return True
        early = ahead.time - self.clock.now()
        if self._objections < OBJECTIONS:
            self._objections += 1
            why = f"it was made by {short(ahead.by)}, and is {early} ms ahead of our clock"
            self._mend(ahead.data, Invalid(why))
            return False
        logger.warning("the run's time is %d ms ahead of our clock: we follow it", early)
        self.clock.begin(ahead.time)
        return True

    def _began_anew(self, data: bytes) -> bool:
        try:
            self._begin_at(data)
        except Invalid:
            return False
        self.feed.doubt()
        return True

    def _begin_at(self, data: bytes) -> None:
        """Believe the newest record's own account of where to begin, and check from there on."""
        record, _ = read_record(self.genesis, data)
        at = base_version(record.version)
        first = data if at == record.version else self._fetch(at)
        if first is None:
            raise Invalid("what it goes on from is gone")
        chain = Chain(self.genesis, begin(self.genesis, first, self._kept(at)))
        if record.base != chain.newest.record.after:
            raise Invalid("it names another snapshot to begin with")
        for step in chain.follow(data, self._fetch) if at < record.version else ():
            chain.add(step)
        self._chain = chain
        self._looked = self._awake = self._monotonic()
        self.clock.begin(record.time)

    def _fetch(self, version: int) -> bytes | None:
        return self.store.get(keys.ready(version))

    def _undecided(self) -> list[Step]:
        """The next record, if it was made and then lost from the register."""
        said = self._fetch(self.newest.version + 1)
        try:
            return [] if said is None else self._chain.follow(said, self._fetch)
        except Invalid:
            return []

    # Making.

    def make(
        self, patience: float, tell: Callable[[Step], None] = lambda step: None
    ) -> Step | None:
        """Make the next record if there is a reason that is `patience` seconds old.

        `tell` hears of it once it is decided: what is left to do then, nobody waits for, and the
        store may be gone in the middle of it.
        """
        at = self.newest
        self.letters.gather(self.feed, self.store, at.mailbox)
        now, ripe = self._monotonic(), self.letters.ripe_at(patience)
        late = self.overdue()
        if (ripe is None or ripe > now) and (late is None or late < patience):
            return None
        step = self._next(at)
        if step is None:
            return None
        self._keep_if_due(at)
        known = at.version <= self._published
        began = self._monotonic()
        won = self._register.advance(at.data, step.place.data, step.place.version, known)
        self.cost += (self._monotonic() - began - self.cost) * RECENT
        if not won:
            return None
        self._published = step.place.version
        self.feed.moved(step.place.data)
        self._chain.add(step)
        self.letters.forget_taken(step.place.mailbox)
        self.clock.saw(step.place.time)
        tell(step)
        self._keep_if_due(step.place)
        self._clean(step.place.version)
        return step

    def overdue(self) -> float | None:
        """For how many seconds a tick has been due; less than 0 until it is."""
        when = due(self.newest)
        return None if when is None else (self.clock.now() - when) / 1000

    def _next(self, at: Place) -> Step | None:
        now = min(max(self.clock.now(), at.time), at.time + MAX_STEP)
        while True:
            letters, given_up = self.letters.for_record()
            try:
                return next_record(self.genesis, self._identity, at, now, letters, given_up)
            except Unfit as error:
                logger.warning("%s; it is given up", error)
                self.letters.discard(error.slot)
            except Invalid:
                return None  # nothing is due after all

    # Keeping.

    def _keep_if_due(self, place: Place) -> None:
        """By who made it, and before anybody builds on it."""
        if is_kept(place.version) and place.version > self._kept_last:
            self._keep(place)
            self._kept_last = place.version

    def _mend(self, data: bytes | None, why: Invalid) -> None:
        """Put the newest known record back in the place of `data`."""
        found = data or b""
        now = self._monotonic()
        if now - self._told >= QUIET:
            self._told = now
            version = self.newest.version
            logger.warning(
                "the run's newest record in the store does not count: %s; version %d is put back",
                why,
                version,
            )
        base = self._chain.base
        if self._kept(base.version) is None and is_kept(base.version):
            self._keep(base)
        for place in self._chain.since(base.version):
            if self._fetch(place.version) != place.data:
                self.store.set(keys.ready(place.version), place.data)
        self.store.compare_set(keys.RECORD, found, self.newest.data)
        self.feed.doubt()
        # Last: who finds a genesis and no record takes the run for one that has just been created.
        self.store.compare_set(keys.GENESIS, b"", self.genesis.data)

    def _keep(self, place: Place) -> None:
        whole = snapshot(place)
        for number, start in enumerate(range(0, len(whole), PIECE)):
            piece = whole[start : start + PIECE]
            self.store.set(keys.snapshot_piece(place.version, number), piece)

    def _kept(self, version: int) -> bytes | None:
        if not is_kept(version):
            return None
        pieces: list[bytes] = []
        for number in range(MAX_PIECES):
            piece = self.store.get(keys.snapshot_piece(version, number))
            if piece is None:
                break
            pieces.append(piece)
            if len(piece) < PIECE:
                break
        return b"".join(pieces) or None

    def _clean(self, version: int) -> None:
        """Remove what nobody needs any more: many old records at a time, each of them twice.

        Something may have been left behind the first time.
        """
        if version % CLEANED:
            return
        last = version - KEPT
        olds = range(max(last - 2 * CLEANED + 1, 0), last + 1)
        found = self.store.get_many([keys.ready(old) for old in olds])
        gone: list[str] = []
        for old, data in zip(olds, found, strict=True):
            if data is not None:
                gone += [*self._letters_of(data), keys.ready(old)]
                for number in count() if is_kept(old) else ():
                    if not self.store.delete(keys.snapshot_piece(old, number)):
                        break
        self.store.delete_many(gone)

    def _letters_of(self, data: bytes) -> list[str]:
        try:
            record, _ = read_record(self.genesis, data)
        except Invalid:
            return []
        return [keys.letter(mail.slot) for mail in record.mail]
