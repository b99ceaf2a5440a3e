"""Content kept in memory, by name, within a number of bytes.

What was `put` here stays until it is dropped or its round expires. What was fetched from others is
kept to serve them too, and makes room, oldest first, when room is needed.
"""

import msgspec
from blake3 import blake3

from folkmoot.core.content import PIECE, name_of_pieces, piece_hashes


class StoreFull(Exception):
    """There is no room; its message says how much there is."""


class HeldBlob(msgspec.Struct):
    """Some content, and what is needed to send it piece by piece."""

    data: memoryview
    hashes: bytes
    round: int | None  # it expires with its round; None: it stays until it is dropped
    own: bool

    def piece(self, index: int) -> bytes:
        return bytes(self.data[index * PIECE : (index + 1) * PIECE])


class BlobStore:
    """Content by name."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.used = 0
        self._held: dict[bytes, HeldBlob] = {}  # in order of arrival

    def __contains__(self, name: bytes) -> bool:
        return name in self._held

    def find(self, name: bytes) -> HeldBlob | None:
        return self._held.get(name)

    def put(self, data: bytes | bytearray | memoryview, round: int | None) -> bytes:
        """Keep content of our own. The bytes are not copied: they must not change."""
        view = memoryview(data).cast("B")
        hashes = piece_hashes(view, blake3)
        name = name_of_pieces(len(view), hashes, blake3)
        held = self._held.get(name)
        if held is None:
            self._make_room(len(view))
            self._add(name, HeldBlob(view, hashes, round, own=True))
        else:
            held.own = True
            held.round = _longer(held.round, round)
        return name

    def keep(self, name: bytes, data: bytes, hashes: bytes, round: int | None) -> None:
        """Keep fetched content that was verified, if there is room."""
        if name in self._held:
            return
        try:
            self._make_room(len(data))
        except StoreFull:
            return  # it only was to serve others
        self._add(name, HeldBlob(memoryview(data), hashes, round, own=False))

    def drop(self, name: bytes) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            self.used -= len(held.data)

    def expire(self, before: int) -> None:
        """Drop everything of the rounds below `before`."""
        old = [n for n, h in self._held.items() if h.round is not None and h.round < before]
        for name in old:
            self.drop(name)

    def _add(self, name: bytes, held: HeldBlob) -> None:
        self._held[name] = held
        self.used += len(held.data)

    def _make_room(self, size: int) -> None:
        fetched = [(n, len(h.data)) for n, h in self._held.items() if not h.own]
        if self.used - sum(s for _, s in fetched) + size > self.budget:
            raise StoreFull(
                f"No room for {size} bytes: {self.used} of {self.budget} are in use by content "
                "that was put here. Drop or expire some, or raise `store_bytes`."
            )
        for name, _ in fetched:
            if self.used + size <= self.budget:
                return
            self.drop(name)


def _longer(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(a, b)
