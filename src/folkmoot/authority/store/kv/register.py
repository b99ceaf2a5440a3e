"""A value that moves from one record to the next, and never any other way.

One key holds the newest record. It moves only by `compare_set` from exactly the bytes that were
read, so a process that slept through any number of moves cannot win with what it knew.

Record n is also written to a key of its own, `<ready>:<n>`, which exists to wake those who wait
for n and decides nothing. The winner writes it after the move; if it died in between, `repair` is
for anyone who finds the register at n. Deleting old ones (`clean`) is harmless: who still waits for
n finds the register further ahead. Nothing else is ever deleted, so no reader can be raced.
"""

from folkmoot.authority.store.kv import Store


class Register:
    """The register at `key` of a store, for one thread."""

    def __init__(self, store: Store, key: str, ready: str) -> None:
        self._store, self._key, self._ready = store, key, ready

    def read(self) -> bytes | None:
        """The newest record, or None before the first."""
        return self._store.get(self._key)

    def advance(self, expected: bytes | None, desired: bytes, n: int) -> bool:
        """Make `desired` record n if the newest is still `expected`; whether it was us.

        `desired` must be unique to the caller (a nonce), else two may think that they won.
        """
        if desired == expected:
            raise ValueError(f"record {n} equals the one before it; a record needs a nonce")
        if self._store.compare_set(self._key, expected or b"", desired) != desired:
            return False
        self.repair(desired, n)
        return True

    def wait(self, n: int, seconds: float) -> bytes | None:
        """Record n as soon as it is there; None when nobody said so for that long: then `read`."""
        return self._store.wait(f"{self._ready}:{n}", seconds)

    def repair(self, record: bytes, n: int) -> None:
        """Wake those who wait for n, with the record n that the caller read in the register."""
        self._store.compare_set(f"{self._ready}:{n}", b"", record)

    def clean(self, n: int) -> None:
        """Forget the waking key of an old record n."""
        self._store.delete(f"{self._ready}:{n}")
