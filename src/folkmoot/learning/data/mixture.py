"""Orders in which samples are drawn: shuffled, repeated, mixed by weight.

Everything here maps a sample's number to a place in the data by arithmetic alone, so any
client finds any sample without the ones before it.

A mixture is error diffusion with a period. Weights become whole quotas q of a period of P
samples; within it, the k-th draw of a source with quota q falls due at (k + ½)/q, and sources
are served in order of due time (ties: the earlier source). So every prefix of the samples holds
each source's share to within one sample or so, and sample i is draw ⌊i/P⌋ · q + rank(i mod P).
"""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from folkmoot.learning.data.permutation import Indices, Permutation
from folkmoot.learning.data.source import DataError
from folkmoot.learning.data.tokens import Tokens

LONGEST_PERIOD = 65536


class Provider(Protocol):
    """What a learner needs of data: `samples(batch_ids) -> tokens` [n, length + 1]."""

    name: str
    count: int
    """How many samples there are before the data repeats or ends."""

    def samples(self, ids: Indices) -> Tokens: ...


class Drawn:
    """A provider in a seeded order, passed through again and again when `wrap` is set."""

    def __init__(self, inner: Provider, seed: int, shuffle: bool, wrap: bool) -> None:
        self.inner, self.seed, self.shuffle, self.wrap = inner, seed, shuffle, wrap
        self.name, self.count = inner.name, inner.count

    def samples(self, ids: Indices) -> Tokens:
        if not self.wrap and len(ids) and int(ids.max()) >= self.count:
            raise DataError(
                f"{self.name}: sample {int(ids.max())} was asked for, but there are only"
                f" {self.count}; add data, or set wrap = true to use it again"
            )
        return self.inner.samples(self._places(ids))

    def _places(self, ids: Indices) -> Indices:
        passes, places = np.divmod(ids, self.count)
        if self.shuffle:
            for number in np.unique(passes):
                rows = passes == number
                places[rows] = Permutation(self.count, self.seed, f"pass {number}")(places[rows])
        return places


class Mixture:
    """Several providers drawn from in proportion to their weights."""

    def __init__(self, parts: Sequence[Provider], weights: Sequence[float]) -> None:
        self.parts = parts
        self.quotas = quotas(weights)
        due = [(np.arange(quota) + 0.5) / quota for quota in self.quotas]
        owner = np.repeat(np.arange(len(parts)), self.quotas)
        rank = np.concatenate([np.arange(quota) for quota in self.quotas])
        order = np.lexsort((owner, np.concatenate(due)))
        self.owner, self.rank, self.period = owner[order], rank[order], len(order)
        self.name = " + ".join(part.name for part in parts)
        self.count = min(self._before_end(n) for n in range(len(parts)))

    def samples(self, ids: Indices) -> Tokens:
        cycle, step = np.divmod(ids, self.period)
        which = self.owner[step]
        out: Tokens | None = None
        for number in np.unique(which):
            rows = np.flatnonzero(which == number)
            places = cycle[rows] * self.quotas[number] + self.rank[step[rows]]
            found = self.parts[number].samples(places)
            if out is None:
                out = np.empty((len(ids), found.shape[1]), dtype=np.int64)
            out[rows] = found
        if out is None:
            raise ValueError("no samples were asked for")
        return out

    def _before_end(self, number: int) -> int:
        """How many samples of the mixture come before this part's data is used up."""
        cycles, left = divmod(self.parts[number].count, self.quotas[number])
        return cycles * self.period + int(np.flatnonzero(self.owner == number)[left])


def quotas(weights: Sequence[float]) -> list[int]:
    """Whole numbers in proportion to the weights, in lowest terms, each at least 1."""
    if not weights or not all(math.isfinite(w) and w > 0 for w in weights):
        raise ValueError(f"weights of a mixture are positive numbers; got {list(weights)}")
    if all(float(w).is_integer() for w in weights) and sum(weights) <= LONGEST_PERIOD:
        whole = [int(w) for w in weights]
    else:
        whole = [max(1, round(w / sum(weights) * LONGEST_PERIOD)) for w in weights]
    shared = math.gcd(*whole)
    return [w // shared for w in whole]
