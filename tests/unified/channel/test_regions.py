"""Regions of a heap never overlap, and all of it can be had again."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.unified.channel.regions import PAGE, Regions, pages

SIZE = 20 * PAGE


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6 * PAGE)), max_size=60))
def test_regions_never_overlap_and_come_back(steps: list[tuple[bool, int]]) -> None:
    regions, taken = Regions(SIZE), dict[int, int]()
    for give, length in steps:
        if give and taken:
            offset = sorted(taken)[length % len(taken)]
            regions.free(offset)
            del taken[offset]
        elif (offset_or_none := regions.take(length)) is not None:
            taken[offset_or_none] = pages(length)
        else:
            assert largest_gap(taken) < pages(length)
        ends = [(offset, offset + length) for offset, length in sorted(taken.items())]
        assert all(a[1] <= b[0] for a, b in pairwise(ends))
        assert all(end <= SIZE and offset % PAGE == 0 for offset, end in ends)
        assert len(regions) == len(taken)
    for offset in taken:
        regions.free(offset)
    assert regions.take(SIZE) == 0


def largest_gap(taken: dict[int, int]) -> int:
    at, gaps = 0, [0]
    for offset, length in sorted(taken.items()):
        gaps.append(offset - at)
        at = offset + length
    return max(*gaps, SIZE - at)


def test_the_first_pages_are_used_again() -> None:
    regions = Regions(SIZE)
    assert (regions.take(PAGE), regions.take(1)) == (0, PAGE)
    regions.free(0)
    regions.free(0)
    assert (regions.take(1), regions.take(2 * PAGE), regions.take(SIZE)) == (0, 2 * PAGE, None)
