"""Every sample of a round goes to exactly one client, however the round is made up."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.coordinator.assignment import (
    EVEN,
    FASTEST,
    SLOWEST,
    Assignment,
    Span,
    cut,
    merge,
    numbers,
    total,
    weights_from_speeds,
)
from folkmoot.core.shuffle import lcg_shuffle

SEEDS = st.integers(0, 2**64 - 1)


@st.composite
def disjoint(draw: st.DrawFn) -> tuple[Span, ...]:
    """Spans without a common sample, in any order; some touch."""
    at = draw(st.integers(0, 50))
    spans = []
    for gap, size in draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), max_size=7)):
        spans.append(Span(at + gap, at + gap + size))
        at += gap + size
    return tuple(draw(st.permutations(spans)))


@given(disjoint(), st.integers(1, 40), SEEDS, st.data())
def test_every_sample_is_assigned_exactly_once(
    spans: tuple[Span, ...], clients: int, seed: int, data: st.DataObject
) -> None:
    weights = data.draw(weights_of(clients))
    assignment = Assignment(spans, seed, range(clients), weights)
    shares = assignment.shares()
    assert [s for _, share in shares for s in numbers(share)] == numbers(spans)
    assert len({index for index, _ in shares}) == len(shares) == min(clients, total(spans))
    assert all(assignment.share(index) == share for index, share in shares)
    assert sorted(assignment.busy().tolist()) == sorted(index for index, _ in shares)
    idle = set(range(clients)) - {index for index, _ in shares}
    assert all(assignment.share(index) == () for index in idle)


def weights_of(clients: int) -> st.SearchStrategy[bytes]:
    some = st.lists(st.integers(SLOWEST, FASTEST), min_size=clients, max_size=clients)
    return st.just(b"") | some.map(lambda weights: np.array(weights, "<u2").tobytes())


def plain_sizes(count: int, weights: list[int]) -> list[int]:
    """Shares for clients in order: one each first, the rest by largest remainder, one at a time."""
    sizes = [1 if place < count else 0 for place in range(len(weights))]
    rest = max(count - len(weights), 0)
    exact = [Fraction(rest * weight, sum(weights)) for weight in weights]
    sizes = [size + int(part) for size, part in zip(sizes, exact, strict=True)]
    left = rest - sum(int(part) for part in exact)
    by_remainder = sorted(range(len(weights)), key=lambda at: (int(exact[at]) - exact[at], at))
    for at in by_remainder[:left]:
        sizes[at] += 1
    return sizes


@given(st.integers(0, 400), st.integers(1, 40), SEEDS, st.data())
def test_sizes_are_those_of_the_plain_definition(
    count: int, clients: int, seed: int, data: st.DataObject
) -> None:
    weights = data.draw(weights_of(clients))
    by_index = np.frombuffer(weights, "<u2").tolist() if weights else [EVEN] * clients
    order = lcg_shuffle(clients, seed)
    expected = plain_sizes(count, [by_index[index] for index in order])
    spans = [Span(0, count)] if count else []
    shares = dict(Assignment(spans, seed, range(clients), weights).shares())
    assert [total(shares.get(index, ())) for index in order] == expected


@given(st.integers(0, 400), st.integers(1, 40), SEEDS)
def test_equal_weights_give_the_public_split(count: int, clients: int, seed: int) -> None:
    """A base each, and one more for the first of the shuffled order."""
    base, more = divmod(count, clients)
    expected, start = [], 7
    for place, index in enumerate(lcg_shuffle(clients, seed)):
        size = base + (place < more)
        if size:
            expected.append((index, (Span(start, start + size),)))
        start += size
    spans = [Span(7, 7 + count)] if count else []
    even = np.full(clients, EVEN, "<u2").tobytes()
    assert Assignment(spans, seed, range(clients)).shares() == expected
    assert Assignment(spans, seed, range(clients), even).shares() == expected


@given(st.integers(2, 30), st.integers(1, 2000), SEEDS, st.data())
def test_a_faster_client_never_gets_less(
    clients: int, count: int, seed: int, data: st.DataObject
) -> None:
    weights = data.draw(weights_of(clients).filter(bool))
    by_index = np.frombuffer(weights, "<u2").tolist()
    shares = dict(Assignment([Span(0, count)], seed, range(clients), weights).shares())
    sizes = [total(shares.get(index, ())) for index in range(clients)]
    for slow in range(clients):
        for fast in range(clients):
            if by_index[fast] > by_index[slow]:
                assert sizes[fast] >= sizes[slow] - 1  # one: the order breaks ties


@given(disjoint(), st.integers(0, 70), st.integers(0, 70), st.integers(0, 70))
def test_cutting_in_two_loses_nothing(spans: tuple[Span, ...], a: int, b: int, c: int) -> None:
    start, middle, stop = sorted((a, b, c))
    assert numbers(cut(spans, start, stop)) == numbers(spans)[start:stop]
    parts = (*cut(spans, start, middle), *cut(spans, middle, stop))
    assert numbers(parts) == numbers(cut(spans, start, stop))
    assert all(len(span) > 0 for span in parts)


@given(disjoint())
def test_merging_keeps_the_samples_in_as_few_spans_as_there_are(spans: tuple[Span, ...]) -> None:
    merged = merge(spans)
    assert numbers(merged) == sorted(numbers(spans))
    assert merge(merged) == merged
    assert all(a.stop < b.start for a, b in pairwise(merged))
    assert total(merged) == total(spans) == len(numbers(spans))


SPEEDS = st.lists(st.integers(0, 2**31), min_size=1, max_size=40)


@given(SPEEDS, st.data())
def test_weights_are_bounded_and_follow_the_speeds(speeds: list[int], data: st.DataObject) -> None:
    failed = data.draw(st.lists(st.integers(0, len(speeds) - 1), unique=True, max_size=5))
    column = np.array(speeds, "<u4")
    encoded = weights_from_speeds(column, failed)
    assert encoded == weights_from_speeds(column.copy(), failed)
    weights = np.frombuffer(encoded, "<u2").tolist() if encoded else [EVEN] * len(speeds)
    assert len(weights) == len(speeds)
    assert all(SLOWEST <= weight <= FASTEST for weight in weights)
    assert all(weights[index] == SLOWEST for index in failed)
    fine = [k for k in range(len(speeds)) if k not in failed]
    assert all(weights[k] == EVEN for k in fine if speeds[k] == 0)
    measured = sorted((speeds[k], weights[k]) for k in fine if speeds[k])
    assert all(a[1] <= b[1] for a, b in pairwise(measured))


@given(SPEEDS.filter(any), st.integers(1, 1000))
def test_only_the_ratio_of_speeds_matters(speeds: list[int], factor: int) -> None:
    column = np.array(speeds, np.int64) % 10**6
    scaled = (column * factor).astype("<u4")
    assert weights_from_speeds(scaled) == weights_from_speeds(column.astype("<u4"))
