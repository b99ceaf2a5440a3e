"""Linear combinations of models: what FedAvg, clipping, Krum's mean and FedBuff come down to.

Terms are added in the order given, block by block, in float64, and rounded once at the end. With
sample counts as coefficients every product of a float32 weight is exact, so the mean has one
rounding for each addition in float64 and one to the model's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from folkmoot.federated.aggregate import ModelUpdate
from folkmoot.federated.aggregate.spans import ArraySpan
from folkmoot.federated.model_file.layout import BLOCK, Array, ArrayMeta, Layout, ModelSource
from folkmoot.federated.model_file.reader import page_aligned


class Term(NamedTuple):
    coefficient: float
    source: ModelSource


class LinearCombination:
    """Σ coefficient · model / divisor, a span at a time. Buffers belong to one thread."""

    def __init__(self, terms: Sequence[Term], divisor: float = 1.0, block: int = BLOCK) -> None:
        """`block` is the size of the largest span."""
        self._terms, self._divisor = terms, divisor
        #: A power of two has an inverse that is one as well.
        self._exact = divisor > 1.0 and math.frexp(divisor)[0] == 0.5
        self._sum, self._product = np.empty(block), np.empty(block)
        self._reader = SpanReader(block)

    def __call__(self, span: ArraySpan) -> Array:
        """The values of `span`, in a buffer that the next call overwrites."""
        total, product = self._sum[: span.size], self._product[: span.size]
        for index, (coefficient, source) in enumerate(self._terms):
            values = self._reader.read(source, span)
            if coefficient != 1.0:  # times one is a pass over the block for nothing
                target = product if index else total
                values = np.multiply(values, coefficient, out=target, dtype=np.float64)
            if index:
                np.add(total, values, out=total, dtype=np.float64)
            elif values is not total:
                np.copyto(total, values)
        if self._exact:  # the same bits, in a third of the time
            np.multiply(total, 1.0 / self._divisor, out=total)
        elif self._divisor != 1.0:
            np.divide(total, self._divisor, out=total)
        return total


class SpanReader:
    """Reads spans into one buffer for each dtype."""

    def __init__(self, block: int = BLOCK) -> None:
        self._buffers: dict[str, Array] = {}
        self._block = block

    def read(self, source: ModelSource, span: ArraySpan) -> Array:
        meta = source.layout[span.name]  # a sum of models is wider than they are
        buffer = self._buffers.get(meta.dtype)
        if buffer is None:
            buffer = self._buffers[meta.dtype] = page_aligned(
                self._block * meta.numpy.itemsize
            ).view(meta.numpy)
        values = buffer[: span.size]
        source.read(span.name, span.start, values)
        return values


def sample_weights(updates: Sequence[ModelUpdate]) -> list[int]:
    """How much each update weighs, in whole numbers without a common divisor.

    By its samples, or all the same in the initial round, where nobody has trained yet.
    """
    weights = [update.samples for update in updates]
    divisor = math.gcd(*weights)
    return [weight // divisor for weight in weights] if divisor else [1] * len(updates)


def mean(updates: Sequence[ModelUpdate]) -> tuple[list[Term], float]:
    """Terms and divisor of the mean weighted by samples."""
    if any(update.summed for update in updates):
        return weighted_sum(updates), float(sum(update.samples for update in updates))
    weights = sample_weights(updates)
    terms = [Term(float(w), u.source) for w, u in zip(weights, updates, strict=True)]
    return terms, float(sum(weights))


def weighted_sum(updates: Sequence[ModelUpdate]) -> list[Term]:
    """Terms of Σ samples · model; the sum of an aggregator has its samples in it already."""

    def coefficient(update: ModelUpdate) -> float:
        # Less than 1 only where a sum counts for less than it says.
        return update.samples / update.summed if update.summed else float(update.samples)

    return [Term(coefficient(update), update.source) for update in updates]


def sum_layout(layout: Layout) -> dict[str, ArrayMeta]:
    """How the sum of models with `layout` travels: in float64, as sums are kept."""
    return {name: ArrayMeta("F64", layout[name].shape) for name in sorted(layout)}


def clipped_mean(
    reference: ModelSource,
    updates: Sequence[ModelUpdate],
    weights: Sequence[float],
    factors: Sequence[float],
) -> list[Term]:
    """Terms of reference + Σ wᵢ fᵢ (xᵢ − reference) / Σ wᵢ."""
    total = math.fsum(weights)
    shares = [w * f / total for w, f in zip(weights, factors, strict=True)]
    terms = [Term(s, u.source) for s, u in zip(shares, updates, strict=True)]
    return [Term(1.0 - math.fsum(shares), reference), *terms]
