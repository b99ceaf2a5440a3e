"""How a client hears of records and letters: by waiting for keys, or from a store that tells.

A store that only lets one wait for a key is asked for the register and the mailbox again and again.
One that tells what happens (`Store.watch`) is asked once; after that, letters and records come by
themselves, and with them what is in them. It is asked again after it said nothing for a while: a
member that hangs says nothing either.
"""

import time
from collections.abc import Callable
from typing import Protocol

from folkmoot.authority.store import keys
from folkmoot.authority.store.kv import Store, Watch

# Seconds for which a watch that says nothing is believed.
SILENCE = 2.0


News = Callable[[int], bool]  # whether the letter in a slot would be news


class Feed(Protocol):
    """What one thread hears. `known` is the register's value that it knows."""

    last: int
    """The last slot of which a letter was told; for any thread."""

    @property
    def whole(self) -> bool:
        """Whether every letter in the mailbox was told of, or was there when it was last read."""
        ...

    def attend(self, letters: bool) -> None:
        """Whether letters are waited for from now on."""
        ...

    def register(self) -> bytes | None:
        """The newest record."""
        ...

    def wait_for_letter(self, slot: int, news: News, known: bytes, seconds: float) -> bool:
        """Whether a letter came that is news, perhaps that of the slot alone, or perhaps a record.

        Or the mailbox must be read before anybody can say.
        """
        ...

    def wait_for_record(self, version: int, known: bytes, seconds: float) -> bool:
        """Whether the record after `known` came, by what is said."""
        ...

    def letters(self) -> dict[int, bytes]:
        """Those that came since the last call, as far as they were told of, by their slots."""
        ...

    def read_mailbox(self) -> None:
        """The mailbox was just read."""
        ...

    def in_vain(self, version: int) -> None:
        """That is the newest record still, though perhaps we were told of another."""
        ...

    def moved(self, known: bytes) -> None:
        """We have moved the register from the value that `register` gave last."""
        ...

    def doubt(self) -> None:
        """What is there may be something else than what was told: look at it."""
        ...

    def close(self) -> None: ...


def open_feed(store: Store) -> Feed:
    watch = store.watch(keys.RECORD, keys.LETTERS)
    return WaitingFeed(store) if watch is None else WatchingFeed(store, watch)


class WaitingFeed:
    """Of a store in which one can wait for a key."""

    last = 0
    whole = False

    def __init__(self, store: Store) -> None:
        self._store = store
        self._woken = -1  # the version that we were told of last

    def attend(self, letters: bool) -> None:
        pass

    def register(self) -> bytes | None:
        return self._store.get(keys.RECORD)

    def wait_for_letter(self, slot: int, news: News, known: bytes, seconds: float) -> bool:
        return self._store.wait(keys.letter(slot), seconds) is not None

    def wait_for_record(self, version: int, known: bytes, seconds: float) -> bool:
        if self._store.wait(keys.ready(version), seconds) is None:
            return False
        self._woken = version
        return True

    def in_vain(self, version: int) -> None:
        if self._woken > version:
            self._store.delete(keys.ready(self._woken))  # a stranger's: it would wake us for ever
            self._woken = -1

    def letters(self) -> dict[int, bytes]:
        return {}

    def read_mailbox(self) -> None:
        pass

    def moved(self, known: bytes) -> None:
        pass

    def doubt(self) -> None:
        pass

    def close(self) -> None:
        pass


class WatchingFeed:
    """Of a store that tells."""

    def __init__(self, store: Store, watch: Watch) -> None:
        self.last = 0
        self._store, self._watch = store, watch
        self._watching = self._attending = self._read = False
        self._value: bytes | None = None  # of the register
        self._ours: bytes | None = None  # what we wrote there, until we are told of it
        self._letters: dict[int, bytes] = {}
        self._heard = 0.0

    @property
    def whole(self) -> bool:
        return self._watching and self._attending and self._read

    def attend(self, letters: bool) -> None:
        if letters != self._attending:
            self._attending, self._read = letters, False
            self._letters.clear()
            self._watch.numbered(letters)

    def register(self) -> bytes | None:
        self._hear(0.0)
        if self._watching and time.monotonic() - self._heard > SILENCE:
            self._read = False
            self._heard = time.monotonic()
            if self._store.get(keys.RECORD) != self._value:
                self.doubt()
        if not self._watching:
            self._value, self._ours = self._watch.begin(), None
            self._watching, self._read = True, False
            self._heard = time.monotonic()
        return self._value

    def wait_for_letter(self, slot: int, news: News, known: bytes, seconds: float) -> bool:
        return not self.whole or self._wait(seconds, known, news)

    def wait_for_record(self, version: int, known: bytes, seconds: float) -> bool:
        return self._wait(seconds, known, lambda slot: False)

    def letters(self) -> dict[int, bytes]:
        self._hear(0.0)
        came, self._letters = self._letters, {}
        return came

    def read_mailbox(self) -> None:
        self._read = self._watching and self._attending

    def in_vain(self, version: int) -> None:
        pass

    def moved(self, known: bytes) -> None:
        self._value = self._ours = known

    def doubt(self) -> None:
        self._watching = False

    def close(self) -> None:
        self._watch.close()

    def _wait(self, seconds: float, known: bytes, news: News) -> bool:
        """Until there are letters that are news, or the register is another."""
        end = time.monotonic() + seconds
        while self._watching:
            if self._value != known or any(map(news, self._letters)):
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._hear(left)
        return True  # it broke, and must be looked at

    def _hear(self, seconds: float) -> None:
        changes = self._watch.changes(seconds) if self._watching else []
        if changes is None:
            self._watching = False
            return
        for slot, value in changes:
            self._heard = time.monotonic()
            if slot is None:
                self._change(value)
            elif value is not None and self._attending:
                self._letters[slot] = value
                self.last = max(self.last, slot)

    def _change(self, value: bytes | None) -> None:
        """Of the register: what came before our own is older than what we know."""
        if self._ours is None:
            self._value = value
        elif value == self._ours:
            self._ours = None
