"""A look at a body while it comes: whether it holds nothing but finite numbers of one kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from folkmoot.federated.model_file.layout import (
    BadModel,
    Layout,
    decode_header,
    header_length,
)

#: A longer header is not worth keeping: the body is read again.
MOST_HEADER = 1 << 16


class ArrivingFloats:
    """Is fed the pieces of a body of `total` bytes, in their order.

    `finite` is a promise about every value that the body's own header describes, as `layout`. Where
    it is not given, nothing is known: there may be integers, several dtypes, or no model at all.
    """

    def __init__(self, total: int) -> None:
        self._total, self._seen = total, 0
        self._head = bytearray()
        self.layout: Layout = {}
        self._dtype: np.dtype[Any] | None = None
        #: The beginning of a value whose end is in the next piece.
        self._rest = b""
        self._hopeful = True

    @property
    def finite(self) -> bool:
        whole = self._dtype is not None and self._seen == self._total and not self._rest
        return self._hopeful and whole

    def update(self, piece: memoryview) -> None:
        self._seen += len(piece)
        if self._hopeful:
            try:
                self._hopeful = self._look(piece)
            except BadModel:
                self._hopeful = False

    def _look(self, piece: memoryview) -> bool:
        if self._dtype is None:
            before = len(self._head)
            self._head += piece[: MOST_HEADER - before]
            end = self._header_end()
            if end is None:
                return len(self._head) < MOST_HEADER
            self.layout, _ = decode_header(bytes(self._head[:end]), self._total)
            kinds = {meta.numpy for meta in self.layout.values()}
            if len(kinds) > 1 or next(iter(kinds)).kind != "f":
                return False
            self._dtype, piece = kinds.pop(), piece[end - before :]
        return self._all_finite(piece, self._dtype)

    def _header_end(self) -> int | None:
        if len(self._head) < 8:
            return None
        end = 8 + header_length(bytes(self._head[:8]), self._total)
        return end if len(self._head) >= end else None

    def _all_finite(self, piece: memoryview, dtype: np.dtype[Any]) -> bool:
        if self._rest:
            missing = dtype.itemsize - len(self._rest)
            split, piece = self._rest + bytes(piece[:missing]), piece[missing:]
            self._rest = b""
            if len(split) < dtype.itemsize:
                self._rest = split
                return True
            if not np.isfinite(np.frombuffer(split, dtype)).all():
                return False
        whole = len(piece) - len(piece) % dtype.itemsize
        self._rest = bytes(piece[whole:])
        return bool(np.isfinite(np.frombuffer(piece[:whole], dtype)).all())
