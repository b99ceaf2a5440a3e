"""How much each may count for, when everybody says so itself.

Nobody counts for more than so many times the lower median of samples: with an honest half, the
median is honest. Who speaks for many, as an aggregator does, counts that many times in the median,
and for that many times as much.
"""

from collections.abc import Sequence


def capped(samples: Sequence[int], participants: Sequence[int], most: float) -> list[int]:
    """The samples that each counts for; `participants` says for how many each speaks."""
    each = [count // heads for count, heads in zip(samples, participants, strict=True)]
    limit = max(1, int(most * _median_low(each, participants)))
    return [min(count, limit * n) for count, n in zip(samples, participants, strict=True)]


def _median_low(values: Sequence[int], times: Sequence[int]) -> int:
    """The lower median of `values`, each so many times."""
    middle = (sum(times) - 1) // 2
    for value, count in sorted(zip(values, times, strict=True)):
        if middle < count:
            return value
        middle -= count
    raise ValueError("nothing has no median")
