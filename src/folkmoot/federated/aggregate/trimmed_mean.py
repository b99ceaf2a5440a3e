"""Coordinate-wise median and trimmed mean (Yin et al. 2018): what a minority of liars cannot move
far.

One block of every update is in memory at a time, and the block shrinks as participants grow, so
memory does not depend on their number. Sample counts are not used: a liar would choose its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from folkmoot.federated.aggregate import Closing, ModelUpdate
from folkmoot.federated.aggregate.sorting import sort_rows
from folkmoot.federated.aggregate.spans import ArraySpan
from folkmoot.federated.aggregate.strategy import (
    Figures,
    Strategy,
    common_layout,
    require,
    write_blocks,
)
from folkmoot.federated.model_file.layout import BLOCK, Array

#: Bytes for the blocks of all updates, in each thread. Half a megabyte for each of a few updates is
#: the second-level cache; what is larger streams through the third.
BUDGET = 4 << 20
SMALLEST_BLOCK = 512


class Median(Strategy, frozen=True, tag="median"):
    """The middle value of each coordinate; the mean of the two middle ones of an even number."""

    def combine(self, closing: Closing) -> Figures:
        count = len(closing.updates)
        write_middle(closing, (count - 1) // 2)
        return {"trimmed": float(count - 1 - (count - 1) % 2)}


class TrimmedMean(Strategy, frozen=True, tag="trimmed_mean"):
    """The mean of each coordinate without its `trim` highest and lowest shares."""

    trim: float = 0.1

    def __post_init__(self) -> None:
        require(0 <= self.trim < 0.5, f"trim is {self.trim}; expected from 0 to less than 0.5")

    def combine(self, closing: Closing) -> Figures:
        cut = int(self.trim * len(closing.updates))
        write_middle(closing, cut)
        return {"trimmed": float(2 * cut)}


def write_middle(closing: Closing, cut: int) -> None:
    """The mean of what is left of each coordinate when `cut` values go at either end."""
    layout, updates = common_layout(closing), closing.updates
    block = min(BLOCK, max(SMALLEST_BLOCK, BUDGET // (8 * len(updates))))
    write_blocks(layout, lambda: Middle(updates, cut, block), closing.out, block)


class Middle:
    """The trimmed mean of one span after another; buffers belong to one thread."""

    def __init__(self, updates: Sequence[ModelUpdate], cut: int, block: int) -> None:
        self._updates, self._cut = updates, cut
        self._raw: dict[str, Array] = {}
        self._block, self._sum = block, np.empty(block)

    def __call__(self, span: ArraySpan) -> Array:
        matrix = self._matrix(span)
        rows = [row[: span.size] for row in matrix[:-1]]
        for row, update in zip(rows, self._updates, strict=True):
            update.source.read(span.name, span.start, row)
        rows, _ = sort_rows(rows, matrix[-1][: span.size])
        kept = rows[self._cut : len(rows) - self._cut]
        total = self._sum[: span.size]
        total.fill(0.0)
        for row in kept:
            np.add(total, row, out=total)
        return np.divide(total, len(kept), out=total)

    def _matrix(self, span: ArraySpan) -> Array:
        if span.meta.dtype not in self._raw:
            self._raw = {
                span.meta.dtype: np.empty((len(self._updates) + 1, self._block), span.meta.numpy)
            }
        return self._raw[span.meta.dtype]
