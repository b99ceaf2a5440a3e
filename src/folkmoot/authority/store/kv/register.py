"""A value that moves from one record to the next, and never any other way.

One key holds the newest record. It moves only by `compare_set` from exactly the bytes that were
read, so a process that slept through any number of moves cannot win with what it knew.

Record n is also written to a key of its own, `<ready>:<n>`, which exists to wake those who wait
for n and decides nothing. The winner writes it with the move or after it; if it died in between,
whoever makes record n + 1 writes it first. Deleting old ones is harmless: who still waits for n
finds the register further ahead. Nothing else is ever deleted, so no reader can be raced.
"""

from folkmoot.authority.store.kv import Store


class Register:
    """The register at `key` of a store, for one thread."""

    def __init__(self, store: Store, key: str, ready: str) -> None:
        self._store, self._key, self._ready = store, key, ready

    def read(self) -> bytes | None:
        """The newest record, or None before the first."""
        return self._store.get(self._key)

    def advance(
        self, expected: bytes | None, desired: bytes, n: int, published: bool = False
    ) -> bool:
        """Make `desired` record n if the newest is still `expected`; whether it was us.

        `desired` must be unique to the caller (a nonce), else two may think that they won. The key
        of record n - 1 is written before that, unless it is known to be `published`.
        """
        if desired == expected:
            raise ValueError(f"record {n} equals the one before it; a record needs a nonce")
        before = f"{self._ready}:{n - 1}" if expected and not published else ""
        return self._store.move(self._key, expected or b"", desired, before, f"{self._ready}:{n}")
