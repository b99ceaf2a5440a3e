"""Data files that the run's server keeps, read by ranges: for clients that have no data."""

import asyncio

from folkmoot.authority import DataServer
from folkmoot.learning.data import DataError

SCHEME = "run:"


class ServedFile:
    """A source for `learning.data`, used from the learner's thread while the loop runs."""

    def __init__(self, authority: DataServer, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = SCHEME + name
        self._authority, self._loop = authority, loop
        self._size: int | None = None

    def _ask(self, start: int, length: int) -> tuple[int, bytes]:
        reading = self._authority.read(self.name.removeprefix(SCHEME), start, length)
        return asyncio.run_coroutine_threadsafe(reading, self._loop).result()

    def size(self) -> int:
        if self._size is None:
            self._size, _ = self._ask(0, 0)
        return self._size

    def read(self, start: int, length: int) -> bytes:
        pieces = b""
        while len(pieces) < length:
            _, piece = self._ask(start + len(pieces), length - len(pieces))
            if not piece:
                raise DataError(f"{self.name} ends at byte {start + len(pieces)}: it is too short")
            pieces += piece
        return pieces
