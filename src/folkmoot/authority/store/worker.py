"""The thread with which a client follows a run's log and does its share of moving it.

It waits for the next record, or, if it is among the first in turn, for the next letter; it goes on
to what was made, and makes a record itself when it is its turn, or when those before it have let
their time pass. A store that does not answer is tried again for ever.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from folkmoot.authority.store import keys, turn
from folkmoot.authority.store.genesis import Genesis
from folkmoot.authority.store.kv import Store, StoreError, StoreGone
from folkmoot.authority.store.log import Damaged, Log
from folkmoot.authority.store.mailbox import Mailbox
from folkmoot.authority.store.record import Place, Step
from folkmoot.host.clock import backoff
from folkmoot.host.signing import Identity

logger = logging.getLogger(__name__)

# The longest wait for a letter, in seconds: how late we can be to see a record of somebody else.
ATTENTIVE_CHUNK = 0.25
# Seconds until a store that is gone is tried again.
FIRST_WAIT, LONGEST_WAIT = 0.1, 3.0
# Seconds for which a run that is not there may come to be.
COMING = 3.0
CLOSE_TIME = 3.0


class NoRun(Exception):
    """There is no such run in the store, or none that we can take part in; says what to do."""


class Hears(Protocol):
    """Whom the worker tells, from its thread."""

    def began(self, genesis: Genesis, place: Place) -> None:
        """At the beginning, and again when records were skipped."""
        ...

    def moved(self, step: Step) -> None: ...

    def lost(self, error: StoreGone) -> None:
        """Nobody answers; it is tried again."""
        ...

    def ended(self, error: Exception | None) -> None:
        """The last word: closed, or why it cannot go on."""
        ...


class Worker:
    """Follows one run. `open_store` connects to its part of a store."""

    def __init__(
        self, open_store: Callable[[], Store], run_id: str, identity: Identity, hears: Hears
    ) -> None:
        self._open_store, self._run_id, self._identity = open_store, run_id, identity
        self._hears = hears
        self._store: Store | None = None
        self._log: Log | None = None
        self._posted: list[tuple[int, bytes]] = []  # letters of ours, from another thread
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="run log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End, and wait until it has; not for a store that does not answer."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_TIME)

    def posted(self, slot: int, data: bytes) -> None:
        """A letter of ours is in a slot."""
        self._posted.append((slot, data))

    def mailbox(self) -> Mailbox:
        """The newest that is known of the mailbox, for any thread."""
        assert self._log is not None
        return self._log.newest.mailbox

    def next_slot(self) -> int:
        """The slot that a letter would get now, if letters are told of here; else 0."""
        assert self._log is not None
        feed = self._log.feed
        return max(feed.last + 1, self._log.newest.mailbox.next) if feed.whole else 0

    def _run(self) -> None:
        delays = backoff(FIRST_WAIT, LONGEST_WAIT)
        problem: Exception | None = None
        while not self._closing.is_set():
            try:
                self._turn()
                delays = backoff(FIRST_WAIT, LONGEST_WAIT)
            except StoreGone as error:
                self._disconnect()
                self._hears.lost(error)
                self._closing.wait(next(delays))
            except (StoreError, Damaged, NoRun, ValueError) as error:
                problem = error
                break
            except Exception as error:
                logger.exception("the run's log cannot be followed")
                problem = error
                break
        self._disconnect()
        self._hears.ended(problem)

    def _turn(self) -> None:
        """Wait for something and go on with it."""
        log = self._connected()
        steps, skipped = log.look()
        self._tell(log, steps, skipped)
        at = log.newest
        while self._posted:
            log.letters.note(at.mailbox, *self._posted.pop(0))
        rank = turn.rank(at.state, at.version, self._identity.public)
        hold = turn.hold(rank)
        attentive = rank < turn.ATTENTIVE
        log.feed.attend(attentive)
        if attentive:
            woken = log.wait_for_letter(self._seconds(log, hold, ATTENTIVE_CHUNK))
            if woken and self._others_come(log, rank):
                return
        elif log.wait(self._seconds(log, hold, turn.look(at.state))):
            return
        log.make(0.0 if attentive else hold, self._hears.moved)

    def _others_come(self, log: Log, rank: int) -> bool:
        """Let other letters come behind the first; whether a record did."""
        state = log.newest.state
        pace, expected = turn.pace(state, log.cost), turn.expected(state)
        if rank == 0 and expected:
            log.wait_for_letters(expected, pace)
            return False
        return log.wait(turn.hold(rank) + pace)

    def _seconds(self, log: Log, hold: float, most: float) -> float:
        """How long there is nothing to do for us, if nothing comes."""
        late, ripe = log.overdue(), log.letters.ripe_at(hold)
        waits = [most]
        if late is not None:
            waits.append(hold - late)
        if ripe is not None:
            waits.append(ripe - time.monotonic())
        return max(min(waits), 0.0)

    def _tell(self, log: Log, steps: list[Step], skipped: bool) -> None:
        if skipped:
            self._hears.began(log.genesis, log.newest)
        for step in steps:
            self._hears.moved(step)

    # The connection.

    def _connected(self) -> Log:
        if self._store is None:
            self._store = self._open_store()
            if self._log is not None:
                self._log.connect(self._store)
        if self._log is None:
            genesis = self._genesis(self._store)
            log = Log(self._store, genesis, self._identity)
            log.begin()
            self._log = log
            self._hears.began(genesis, log.newest)
        return self._log

    def _genesis(self, store: Store) -> Genesis:
        data = store.wait(keys.GENESIS, COMING)
        if data is None:
            raise NoRun(
                f"there is no run '{self._run_id}' in this store: create it with"
                " `folkmoot create run.toml --store …`, or ask its owner for its name"
            )
        genesis = Genesis(data)
        if genesis.run.run_id != self._run_id:
            raise NoRun(f"this is run '{genesis.run.run_id}', not '{self._run_id}'")
        if not genesis.access.member(self._identity.public):
            raise NoRun("this key is not on the run's allow-list")
        return genesis

    def _disconnect(self) -> None:
        if self._log is not None:
            self._log.feed.close()
        if self._store is not None:
            self._store.close()
            self._store = None
