"""Content as it comes in: which pieces are here, which are on their way, which nobody brings yet.

The outline is proven by the name before a byte of content is taken, and a piece by the outline
before it counts; so a lie costs the receiver one piece.
"""

from blake3 import blake3

from folkmoot.core.content import NAME_BYTES, PIECE, name_of_pieces, piece_count

SHARE = 64
"""The most pieces asked for at once while several bring them."""


class WrongContent(Exception):
    """Bytes that are not what the name stands for."""


class Pieces:
    """An outline, and the content behind it as far as it is here."""

    def __init__(self, name: bytes, size: int, hashes: bytes, size_limit: int) -> None:
        if size > size_limit:
            raise WrongContent(f"content of {size} bytes where at most {size_limit} were expected")
        if len(hashes) != NAME_BYTES * piece_count(size):
            raise WrongContent("an outline that does not fit its size")
        if name_of_pieces(size, hashes, blake3) != name:
            raise WrongContent("an outline that its name does not prove")
        self.hashes = hashes
        self.left = piece_count(size)
        self.data = bytearray(size)
        self._free = [(0, self.left)]  # spans that nobody brings, in order

    def take(self, workers: int) -> tuple[int, int] | None:
        """The next span for one of so many workers: large at first, small towards the end."""
        if not self._free:
            return None
        start, stop = self._free[0]
        if workers > 1:
            waiting = sum(stop - start for start, stop in self._free)
            stop = min(stop, start + max(1, min(SHARE, waiting // (2 * workers))))
        self._claim(stop)
        return start, stop

    def claim(self, stop: int) -> tuple[int, int]:
        """The span that was asked for together with the outline."""
        self._claim(min(stop, self.left))
        return 0, min(stop, self.left)

    def give_back(self, start: int, stop: int) -> None:
        """Nobody brings these any more."""
        if start < stop:
            self._free.insert(0, (start, stop))

    def waiting(self) -> bool:
        return bool(self._free)

    def length(self, index: int) -> int:
        return min(PIECE, len(self.data) - index * PIECE)

    def put(self, index: int, piece: bytes) -> None:
        """Check and keep a piece."""
        expected = self.hashes[index * NAME_BYTES : (index + 1) * NAME_BYTES]
        if blake3(piece).digest() != expected:
            raise WrongContent(f"a piece (number {index}) that is not the one asked for")
        self.data[index * PIECE : index * PIECE + len(piece)] = piece
        self.left -= 1

    def _claim(self, stop: int) -> None:
        _, end = self._free.pop(0)
        self.give_back(stop, end)
