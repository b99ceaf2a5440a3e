"""Which samples each client of a round trains: every sample exactly once, computed by everyone.

A round trains a list of spans of sample indices: first what earlier rounds still owe, then fresh
ones. Trainers are put in an order by the round's seed and take consecutive shares: equal ones, or
in proportion to their weights. A client with nothing to train has no share and is not judged.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from folkmoot.core.shuffle import lcg_shuffle

EVEN = 256  # the weight of a client of median speed
SLOWEST, FASTEST = EVEN // 8, EVEN * 8


class Span(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Samples start..stop-1."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


Share = tuple[Span, ...]


def total(spans: Sequence[Span]) -> int:
    return sum(map(len, spans))


def numbers(spans: Sequence[Span]) -> list[int]:
    """The samples one by one."""
    return [number for span in spans for number in range(span.start, span.stop)]


def merge(spans: Sequence[Span]) -> Share:
    """The same samples as few, sorted spans."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and merged[-1].stop == span.start:
            merged[-1] = Span(merged[-1].start, span.stop)
        else:
            merged.append(span)
    return tuple(merged)


def cut(spans: Sequence[Span], start: int, stop: int) -> Share:
    """The samples from the `start`-th to before the `stop`-th of `spans` laid end to end."""
    taken = []
    offset = 0
    for span in spans:
        low, high = max(start - offset, 0), min(stop - offset, len(span))
        if low < high:
            taken.append(Span(span.start + low, span.start + high))
        offset += len(span)
        if offset >= stop:
            break
    return tuple(taken)


def weights_from_speeds(speeds: NDArray[np.uint32], failed: Sequence[int] = ()) -> bytes:
    """Weights around `EVEN` for measured tokens/s, 0 for not measured; empty when all are even.

    Whole numbers relative to the median, so that everyone computes the same split. Speeds are the
    clients' own word: a lie gains at most eight times a fair share, and whoever `failed` to
    deliver its last share gets the least until it delivers.
    """
    known = np.sort(speeds[speeds > 0])
    median = int(known[(len(known) - 1) // 2]) if len(known) else 1
    scaled = (speeds.astype(np.int64) * EVEN + median // 2) // median
    weights = np.where(speeds > 0, np.clip(scaled, SLOWEST, FASTEST), EVEN)
    weights[list(failed)] = SLOWEST
    return b"" if (weights == EVEN).all() else weights.astype("<u2").tobytes()


class Assignment:
    """The shares of one round, for all of its trainers."""

    def __init__(
        self,
        spans: Sequence[Span],
        seed: int,
        trainers: Sequence[int],
        weights: bytes = b"",
    ) -> None:
        """`trainers` are roster indices; `weights` (u16 a roster index) empty means equal."""
        self.spans = tuple(spans)
        order = lcg_shuffle(len(trainers), seed)
        self.order = np.asarray(trainers, np.int64)[order]
        sizes = _sizes(total(spans), self.order, weights)
        self.stops = np.cumsum(sizes)
        self.starts = self.stops - sizes

    def shares(self) -> list[tuple[int, Share]]:
        """(roster index, its samples) of everyone who has work, in the order of the samples."""
        rows = zip(self.order.tolist(), self.starts.tolist(), self.stops.tolist(), strict=True)
        return [(i, cut(self.spans, a, b)) for i, a, b in rows if a < b]

    def share(self, index: int) -> Share:
        """One client's samples."""
        at = int(np.flatnonzero(self.order == index)[0])
        return cut(self.spans, int(self.starts[at]), int(self.stops[at]))

    def busy(self) -> NDArray[np.int64]:
        """The roster indices that have work."""
        return self.order[self.stops > self.starts]


def _sizes(samples: int, order: NDArray[np.int64], weights: bytes) -> NDArray[np.int64]:
    """One sample each as far as they go, the rest by weight; a tie goes to the earlier in order."""
    count = len(order)
    sizes = (np.arange(count) < samples).astype(np.int64)
    rest = max(samples - count, 0)
    if weights:
        share = np.frombuffer(weights, "<u2").astype(np.int64)[order]
    else:
        share = np.ones(count, np.int64)
    whole, part = np.divmod(rest * share, max(int(share.sum()), 1))
    sizes += whole
    left = rest - int(whole.sum())
    # Stable, largest remainder first: equal remainders keep the shuffled order.
    sizes[np.argsort(-part, kind="stable")[:left]] += 1
    return sizes
