"""A model on its way out: its body in pieces, out of the arrays themselves."""

from collections.abc import Iterator, Mapping

import numpy as np
from blake3 import blake3

from folkmoot.federated.model_file.hashing_writer import PIECE
from folkmoot.federated.model_file.layout import Array, encode_header, layout_of


class OutgoingModel:
    """Hashed while it goes out, and once, however often it does."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        layout = layout_of(arrays)
        self._parts = [memoryview(encode_header(layout))]
        for name, meta in layout.items():
            flat = np.ascontiguousarray(arrays[name], meta.numpy).reshape(-1)
            self._parts.append(flat.view(np.uint8).data)
        self.size = sum(map(len, self._parts))
        self._hasher, self._hashed = blake3(), 0

    def digest(self) -> bytes:
        """Of what has gone out, and of all before it."""
        digest: bytes = self._hasher.digest()
        return digest

    def pieces(self, offset: int = 0) -> Iterator[memoryview]:
        """The body from `offset` on. What is before it may be elsewhere without our knowing."""
        for start, piece in self._cut(min(offset, self._hashed)):
            end = start + len(piece)
            if end > offset:
                yield piece[max(offset - start, 0) :]
            if end > self._hashed:
                self._hasher.update(piece[self._hashed - start :])
                self._hashed = end

    def _cut(self, offset: int) -> Iterator[tuple[int, memoryview]]:
        """At multiples of a piece of the whole: BLAKE3 takes whole subtrees."""
        position = 0
        for part in self._parts:
            start, position = position, position + len(part)
            at = max(offset, start)
            while at < position:
                end = min(position, at + PIECE - at % PIECE)
                yield at, part[at - start : end - start]
                at = end
