"""Rows of a Hugging Face dataset on disk: parquet files with a column of tokens.

A row holds one sequence of at least length + 1 tokens; what it has more is left out. Only the
row groups that hold asked-for rows are read, and the last few are kept.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from folkmoot.learning.data.permutation import Indices
from folkmoot.learning.data.source import DataError
from folkmoot.learning.data.tokens import Tokens

GROUPS_KEPT = 4


class ParquetRows:
    def __init__(self, paths: Sequence[str], column: str, length: int, vocab_size: int = 0) -> None:
        self.column, self.length, self.vocab_size = column, length, vocab_size
        self.files = [_open(path, column) for path in _expand(paths)]
        self.groups = [
            (file, group) for file in self.files for group in range(file[1].metadata.num_row_groups)
        ]
        sizes = [file[1].metadata.row_group(group).num_rows for file, group in self.groups]
        self.ends = np.cumsum(sizes, dtype=np.int64)
        self.count = int(self.ends[-1]) if sizes else 0
        self.name = ", ".join(str(path) for path, _ in self.files[:3])
        self._group = lru_cache(GROUPS_KEPT)(self._read_group)
        if self.count == 0:
            raise DataError(f"{self.name}: these parquet files hold no rows")

    def samples(self, ids: Indices) -> Tokens:
        out = np.empty((len(ids), self.length + 1), dtype=np.int64)
        which = np.searchsorted(self.ends, ids, side="right")
        for number in np.unique(which):
            column = self._group(int(number))
            first = int(self.ends[number - 1]) if number else 0
            for row in np.flatnonzero(which == number):
                out[row] = self._row(int(number), column, int(ids[row]) - first)
        return out

    def _row(self, number: int, column: Any, row: int) -> Tokens:
        (path, _), group = self.groups[number]
        where = f"{path}: row {row} of row group {group}, column {self.column}"
        cell = column[row]
        if not cell.is_valid or len(cell.values) < self.length + 1:
            held = len(cell.values) if cell.is_valid else 0
            raise DataError(f"{where}: has {held} tokens, but {self.length} + 1 are needed")
        tokens = cell.values.slice(0, self.length + 1).to_numpy(zero_copy_only=False)
        if self.vocab_size and not 0 <= tokens.min() <= tokens.max() < self.vocab_size:
            raise DataError(f"{where}: has tokens outside the vocabulary of {self.vocab_size}")
        return np.asarray(tokens, dtype=np.int64)

    def _read_group(self, number: int) -> Any:
        import pyarrow as pa

        (path, file), group = self.groups[number]
        try:
            return file.read_row_group(group, columns=[self.column]).column(self.column)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path}: row group {group} cannot be read: {error}") from error


def _expand(paths: Sequence[str]) -> list[Path]:
    """Files as given; of a folder, every parquet file below it in the order of their names."""
    found: list[Path] = []
    for path in map(Path, paths):
        found += sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not found:
        raise DataError(f"{', '.join(paths)}: no parquet file here")
    return found


def _open(path: Path, column: str) -> tuple[Path, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as missing:
        raise DataError(
            'parquet data needs pyarrow; install it with: pip install "folkmoot[hf]"'
        ) from missing
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as parquet: {error}") from error
    schema = file.schema_arrow
    if column not in schema.names:
        raise DataError(f"{path}: no column {column!r}; it has {', '.join(schema.names)}")
    kind = schema.field(column).type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(
        kind.value_type
    ):
        raise DataError(f"{path}: column {column!r} holds {kind}, not lists of token numbers")
    return path, file
