"""Sequences of tokens cut from files of tokens.

Sequence i of a file is its tokens [i · L, i · L + L], L inputs and one more to predict; the next
begins with that last one. Sequences never span two files. Reads only the bytes asked for.
"""

import ast
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from folkmoot.learning.data.permutation import Indices
from folkmoot.learning.data.source import DataError, Source, read_all

Tokens = npt.NDArray[np.int64]
NPY_MAGIC = b"\x93NUMPY"
NPY_HEADER_LIMIT = 4096


class TokenFile:
    """One `.bin` (raw little-endian tokens) or `.npy` file as a row of tokens."""

    def __init__(self, source: Source, dtype: str) -> None:
        self.source = source
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.offset = 0
        size = source.size()
        if size >= 10 and bytes(source.read(0, 6)) == NPY_MAGIC:
            self.dtype, self.offset, self.count = _npy_layout(source, size)
        else:
            self.count, rest = divmod(size, self.dtype.itemsize)
            if rest:
                raise DataError(
                    f"{source.name}: its {size} bytes are no whole number of {dtype} tokens;"
                    f" the last begins at byte {size - rest}. Is the file cut short, or the"
                    " dtype another?"
                )

    def rows(self, starts: Sequence[int], length: int) -> list[Tokens]:
        """`length` tokens from each of these positions."""
        width = self.dtype.itemsize
        ranges = [(self.offset + start * width, length * width) for start in starts]
        found = read_all(self.source, ranges)
        return [np.frombuffer(row, dtype=self.dtype).astype(np.int64) for row in found]


class Sequences:
    """All sequences of several token files, numbered from 0 in the order of the files."""

    def __init__(self, files: Sequence[TokenFile], length: int, vocab_size: int = 0) -> None:
        self.files, self.length, self.vocab_size = files, length, vocab_size
        counts = [max(0, (file.count - 1) // length) for file in files]
        self.ends = np.cumsum(counts)
        self.count = int(self.ends[-1])
        self.name = ", ".join(file.source.name for file in files[:3])
        if self.count == 0:
            held = sum(file.count for file in files)
            raise DataError(
                f"{self.name}: {held} tokens hold no sequence of {length} + 1; use a shorter"
                " sequence_length or more data"
            )

    def samples(self, ids: Indices) -> Tokens:
        out = np.empty((len(ids), self.length + 1), dtype=np.int64)
        which = np.searchsorted(self.ends, ids, side="right")
        for number in np.unique(which):
            rows = np.flatnonzero(which == number)
            first = self.ends[number - 1] if number else 0
            starts = [int(i) for i in (ids[rows] - first) * self.length]
            out[rows] = self._read(self.files[number], starts)
        return out

    def _read(self, file: TokenFile, starts: list[int]) -> Tokens:
        found = np.stack(file.rows(starts, self.length + 1))
        if self.vocab_size and found.max() >= self.vocab_size:
            row, column = np.argwhere(found >= self.vocab_size)[0]
            byte = file.offset + (starts[row] + int(column)) * file.dtype.itemsize
            raise DataError(
                f"{file.source.name}: token {found[row, column]} at byte {byte} is not in the"
                f" model's vocabulary of {self.vocab_size}; is the dtype really {file.dtype.name},"
                " and the tokenizer the model's?"
            )
        return found


def _npy_layout(source: Source, size: int) -> tuple[np.dtype[Any], int, int]:
    """dtype, first byte and number of tokens of an `.npy` file, without trusting its header."""
    start = bytes(source.read(0, min(size, NPY_HEADER_LIMIT)))
    wide = start[6] > 1
    offset = int.from_bytes(start[8 : 12 if wide else 10], "little") + (12 if wide else 10)
    try:
        header = ast.literal_eval(start[12 if wide else 10 : offset].decode("latin-1").strip())
        dtype, shape = np.dtype(header["descr"]), header["shape"]
        count = int(np.prod(shape, dtype=np.int64))
    except (SyntaxError, ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise DataError(f"{source.name}: its .npy header cannot be read: {error}") from error
    if dtype.newbyteorder("=") not in (np.uint16, np.uint32) or header.get("fortran_order"):
        raise DataError(
            f"{source.name}: an .npy of {dtype} cannot be used; tokens are uint16 or uint32 in"
            " C order"
        )
    if offset + count * dtype.itemsize > size:
        raise DataError(
            f"{source.name}: the .npy header promises {count} tokens to byte"
            f" {offset + count * dtype.itemsize}, but the file ends at byte {size}"
        )
    return dtype, offset, count
