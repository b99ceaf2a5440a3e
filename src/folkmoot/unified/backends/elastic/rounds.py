"""Who is checked with whom, and what follows from the results: plain functions.

In the first round neighbours are paired. When one of them failed or was slow, it cannot be known
which of the two it was, so there is a second round: those who failed or were slowest are paired
with the fastest. Who failed twice is unfit. A worker counts with the better of its two times.
"""

from collections.abc import Mapping, Sequence
from statistics import median_low

import msgspec

#: A straggler takes so many times as long as the median, and is so many times as far from it as
#: others usually are. The first alone is what 1 % of jitter never reaches; the second is for
#: machines whose times are spread anyway.
SLOWER, FARTHER = 1.5, 5.0
# The standard deviation of a normal distribution, in median absolute deviations.
DEVIATION = 1.4826

Groups = list[tuple[str, ...]]


class CheckOutcome(msgspec.Struct, frozen=True):
    """What came of one worker's check."""

    # None if it failed.
    seconds: float | None = None
    why: str = ""
    # It gave no answer: it is gone, or hangs.
    silent: bool = False


def neighbours(world: Sequence[str]) -> Groups:
    """Pairs, and three at the end when the number is odd."""
    return _with_last([tuple(world[at : at + 2]) for at in range(0, len(world), 2)])


def crossed(results: Mapping[str, CheckOutcome]) -> Groups:
    """The slowest with the fastest, without those who were silent."""
    world = [name for name, result in results.items() if not result.silent]
    world.sort(key=lambda name: _order(results[name]))
    half = len(world) // 2
    pairs: Groups = [(world[at], world[-1 - at]) for at in range(half)]
    return _with_last([*pairs, (world[half],)] if len(world) % 2 else pairs)


def again(results: Mapping[str, CheckOutcome]) -> bool:
    """Whether a second round would tell more."""
    failed = any(result.seconds is None for result in results.values())
    return failed or bool(stragglers([results]))


def unfit(rounds: Sequence[Mapping[str, CheckOutcome]]) -> dict[str, str]:
    """Who was silent, or failed whenever it was checked; and why."""
    found = {}
    for name in rounds[0]:
        results = [results[name] for results in rounds if name in results]
        if results[-1].silent or all(result.seconds is None for result in results):
            found[name] = results[-1].why
    return found


def stragglers(rounds: Sequence[Mapping[str, CheckOutcome]]) -> dict[str, float]:
    """Those who are much slower than the others; how many times as slow."""
    best: dict[str, float] = {}
    for results in rounds:
        for name, result in results.items():
            if result.seconds is not None:
                best[name] = min(result.seconds, best.get(name, result.seconds))
    return slow(best)


def slow(times: Mapping[str, float]) -> dict[str, float]:
    """The rule of stragglers, by median and median absolute deviation."""
    if not times:
        return {}
    middle = median_low(times.values())
    spread = DEVIATION * median_low(abs(seconds - middle) for seconds in times.values())
    limit = max(SLOWER * middle, middle + FARTHER * spread)
    return {name: seconds / middle for name, seconds in times.items() if seconds > limit > 0}


def _order(result: CheckOutcome) -> float:
    return float("inf") if result.seconds is None else result.seconds


def _with_last(groups: Groups) -> Groups:
    """Nobody is checked alone, unless nobody else is there."""
    if len(groups) > 1 and len(groups[-1]) == 1:
        return [*groups[:-2], (*groups[-2], *groups[-1])]
    return groups
