"""How far each update moved from the model it started from, in one pass over all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from folkmoot.federated.aggregate import ModelUpdate
from folkmoot.federated.aggregate.linear import SpanReader
from folkmoot.federated.aggregate.spans import ArraySpan, for_each_span
from folkmoot.federated.model_file.layout import BLOCK, Layout, ModelSource


def distances(
    layout: Layout, reference: ModelSource, updates: Sequence[ModelUpdate]
) -> list[float]:
    """‖xᵢ − reference‖₂ over all float arrays.

    Partial sums are kept for each span and added with `fsum`, which is exact: neither the threads
    nor their order can change the last bit of a norm, and with it the model.
    """
    partial: list[list[float]] = [[] for _ in updates]

    def worker() -> Callable[[ArraySpan], None]:
        readers, base, delta = (SpanReader(), SpanReader()), np.empty(BLOCK), np.empty(BLOCK)

        def measure(span: ArraySpan) -> None:
            if span.meta.numpy.kind != "f":
                return
            origin, moved = base[: span.size], delta[: span.size]
            np.copyto(origin, readers[0].read(reference, span))
            for sums, update in zip(partial, updates, strict=True):
                np.subtract(readers[1].read(update.source, span), origin, out=moved)
                np.multiply(moved, moved, out=moved)
                sums.append(float(np.add.reduce(moved)))

        return measure

    for_each_span(layout, worker)
    return [math.sqrt(math.fsum(sums)) for sums in partial]


def clip_factors(norms: Sequence[float], limit: float) -> list[float]:
    """What to scale each update's step by so that none is longer than `limit`."""
    return [min(1.0, limit / norm) if norm > 0 else 1.0 for norm in norms]
