"""Krum and multi-Krum (Blanchard et al. 2017): trust the updates that have close neighbours.

The score of an update is the sum of its squared distances to its n − f − 2 nearest others; Krum
takes the update with the lowest, multi-Krum the mean of the lowest `keep`. Distances come from a
Gram matrix of the *steps* (model minus reference), accumulated block by block in float64: from
whole models they would drown in cancellation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from folkmoot.federated.aggregate import Closing, ModelUpdate
from folkmoot.federated.aggregate.linear import SpanReader, mean
from folkmoot.federated.aggregate.spans import spans
from folkmoot.federated.aggregate.strategy import (
    Figures,
    Strategy,
    common_layout,
    require,
    write_linear,
)
from folkmoot.federated.model_file.layout import BLOCK, Array, Layout, ModelSource

#: Bytes for one block of every update's step.
BUDGET = 16 << 20


class Krum(Strategy, frozen=True, tag="krum"):
    """`byzantine` is f, how many may lie; `keep` is how many of the best are averaged (1: Krum)."""

    byzantine: int
    keep: int = 1

    def __post_init__(self) -> None:
        require(self.byzantine >= 0, f"byzantine is {self.byzantine}; expected 0 or more")
        require(self.keep >= 1, f"keep is {self.keep}; expected 1 or more")

    def combine(self, closing: Closing) -> Figures:
        layout, updates = common_layout(closing), closing.updates
        gram = gram_matrix(layout, closing.reference or updates[0].source, updates)
        order = np.argsort(scores(gram, self.byzantine), kind="stable")[: self.keep]
        chosen = [updates[index] for index in sorted(order)]
        write_linear(layout, *mean(chosen), closing.out)
        # The theorem needs n > 2f + 2; with fewer the round still ends, and this figure says so.
        proven = len(updates) > 2 * self.byzantine + 2
        return {"chosen": float(len(chosen)), "byzantine_bound_holds": float(proven)}


def gram_matrix(layout: Layout, reference: ModelSource, updates: Sequence[ModelUpdate]) -> Array:
    """Inner products of all steps, over all float arrays. One thread: BLAS brings its own."""
    count = len(updates)
    block = min(BLOCK, max(256, BUDGET // (8 * count)))
    steps, origin, gram = np.empty((count, block)), np.empty(block), np.zeros((count, count))
    reader = SpanReader()
    for span in spans(layout, block):
        if span.meta.numpy.kind != "f":
            continue
        base, x_nb = origin[: span.size], steps[:, : span.size]
        np.copyto(base, reader.read(reference, span))
        for row, update in zip(x_nb, updates, strict=True):
            np.subtract(reader.read(update.source, span), base, out=row)
        gram += x_nb @ x_nb.T
    return gram


def scores(gram: Array, byzantine: int) -> Array:
    """Krum's score of each update: squared distances to its n − f − 2 nearest others, added up."""
    count = len(gram)
    squares = np.diagonal(gram)
    distances = np.maximum(squares[:, None] + squares[None, :] - 2 * gram, 0.0)
    np.fill_diagonal(distances, np.inf)
    nearest = min(max(1, count - byzantine - 2), max(1, count - 1))
    if count == 1:
        return np.zeros(1)
    total: Array = np.sort(distances, axis=1)[:, :nearest].sum(axis=1)
    return total
