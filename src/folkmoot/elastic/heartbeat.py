"""A thread beside the training: it moves the rank's heartbeat and watches those of all others.

It has a connection of its own, so that a main thread that waits, computes or reads from the store
holds up no heartbeat. What it finds is put into `events`, for the main thread to take when it comes
by. It also does what nobody waits for: show the newest number, and delete old keys.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from folkmoot.authority.store.kv import Store, StoreError
from folkmoot.core.iteration import Heartbeats, Member, Rules, keys
from folkmoot.core.iteration.machine import send_heartbeat
from folkmoot.core.iteration.messages import Beaten, Housekeeping, Silent
from folkmoot.core.iteration.record import Heartbeat, read_heartbeat
from folkmoot.elastic.requests import ask

logger = logging.getLogger(__name__)
GOODBYE = 2.0  # seconds that the end of a process may take if the store does not answer
SOON = 10  # milliseconds: the least between two looks


def now_ms() -> int:
    """Milliseconds of this machine's own clock, which nobody sets."""
    return time.monotonic_ns() // 1_000_000


def show_number(store: Store, newest: int) -> None:
    """For people. A winner that comes late must not turn the number back."""
    shown = store.get(keys.COUNTER) or b""
    while not shown.isdigit() or int(shown) < newest:
        desired = b"%d" % newest
        found = store.compare_set(keys.COUNTER, shown, desired) or b""
        if found in (desired, shown):
            return
        shown = found


class HeartbeatThread:
    """From `start` until `stop`. A process that is killed takes it along, which is the point."""

    def __init__(self, store: Store, rules: Rules, rank: int, standing: Heartbeat) -> None:
        self._store, self._rules, self._rank, self._standing = store, rules, rank, standing
        self._others = [keys.heartbeat(rank) for rank in range(rules.world)]
        self._observer = Heartbeats(rules.heartbeat_timeout)
        self._chores: deque[Housekeeping] = deque()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._seen: Sequence[bytes | None] = ()
        self._silent: tuple[int, ...] = ()
        # Time in which this thread could look. While the store is away nobody's heartbeat moves,
        # and nobody is silent.
        self._watched, self._looked = 0, now_ms()
        self.silence_at = now_ms() + rules.heartbeat_timeout
        self._failed = False
        self.events: deque[Silent | Beaten] = deque()
        self.beaten = False
        self.after_look: Callable[[], None] = lambda: None  # called in the thread, after each look

    def start(self) -> None:
        self._thread.start()

    def do_later(self, chores: Housekeeping) -> None:
        self._chores.append(chores)

    def lost(self, members: Sequence[Member]) -> tuple[int, ...]:
        """Those of `members` that are silent, over or replaced, as far as was seen last."""
        seen, silent = self._seen, self._silent
        return tuple(
            member.rank
            for member in members
            if seen and _is_lost(seen[member.rank], member, member.rank in silent)
        )

    def until_silence(self) -> int:
        """Milliseconds until the first of those who are not silent now could be."""
        return self.silence_at - now_ms()

    def stop(self, how: str) -> None:
        """End the thread, then say goodbye: nobody has to wait for a timeout."""
        self._end.set()
        self._thread.join(GOODBYE)
        try:
            if not self._thread.is_alive() and not self.beaten:
                end = bytes(self._standing.ended(how))
                self._store.compare_set(keys.heartbeat(self._rank), bytes(self._standing), end)
        except StoreError as error:
            logger.debug("rank %d could not say goodbye: %s", self._rank, error)
        finally:
            self._store.close()

    def _run(self) -> None:
        pace, interval = self._rules.pace, self._rules.heartbeat_interval
        look, beat = now_ms(), now_ms() + interval
        while not self.beaten and not self._end.wait(max(0, min(look, beat) - now_ms()) / 1000):
            now = now_ms()
            try:
                if now >= beat:
                    self._beat()
                    beat = now + interval
                if now >= look:
                    self._look()
                    look = now + min(pace, max(self.until_silence(), SOON))
                    self._keep_house()
                self._failed = False
            except StoreError as error:
                self._tell(error)
                look = beat = now + pace

    def _beat(self) -> None:
        request = send_heartbeat(self._rank, self._standing)
        (found,) = ask(self._store, request)
        if found == request.desired:
            self._standing = self._standing.next()
            return
        self.beaten = True
        self.events.append(Beaten(found))

    def _look(self) -> None:
        self._seen = self._store.get_many(self._others)
        now = now_ms()
        self._watched += min(now - self._looked, 2 * self._rules.pace)
        self._looked = now
        self._observer.look(self._seen, self._watched)
        self.silence_at = now + self._observer.next_silence(self._watched)
        silent = self._observer.silent(self._watched)
        if silent != self._silent:
            self._silent = silent
            self.events.append(Silent(silent))
        self.after_look()

    def _keep_house(self) -> None:
        newest, old = -1, set[str]()
        while self._chores:
            chores = self._chores.popleft()
            newest = max(newest, chores.iteration)
            old.update(chores.delete)
        if newest >= 0:
            self._store.delete_many(sorted(old))
            show_number(self._store, newest)

    def _tell(self, error: StoreError) -> None:
        if not self._failed:
            logger.warning("rank %d: %s", self._rank, error)
        self._failed = True


def _is_lost(value: bytes | None, member: Member, silent: bool) -> bool:
    beat = read_heartbeat(value)
    if beat is None or beat.incarnation < member.incarnation:
        return False  # seen before this process of the rank was there
    return silent or beat.over or beat.incarnation > member.incarnation
