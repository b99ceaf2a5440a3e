"""Which parts of a heap file are free: first fit, so that the same pages are used again and again.

Pages that were just read are still in the processor's cache, and those that were never touched have
to be found and cleared by the system first.
"""

from bisect import bisect_left, insort

PAGE = 4096  # a region is mapped by itself, so it begins at a page


class Regions:
    """Gives out parts of `size` bytes."""

    def __init__(self, size: int) -> None:
        self.size = size // PAGE * PAGE
        self._free: list[tuple[int, int]] = [(0, self.size)] if self.size else []  # offset, end
        self._taken: dict[int, int] = {}

    def __len__(self) -> int:
        """How many are given out."""
        return len(self._taken)

    def take(self, length: int) -> int | None:
        """The offset of a free part of this length, or None while there is none."""
        length = pages(length)
        for at, (offset, end) in enumerate(self._free):
            if end - offset >= length:
                left = (offset + length, end)
                self._free[at : at + 1] = [left] if left[0] < end else []
                self._taken[offset] = length
                return offset
        return None

    def free(self, offset: int) -> None:
        """A part is free again; one that is not given out is left alone."""
        length = self._taken.pop(offset, 0)
        if not length:
            return
        at = bisect_left(self._free, (offset, 0))
        end = offset + length
        if at < len(self._free) and self._free[at][0] == end:
            end = self._free.pop(at)[1]
        if at and self._free[at - 1][1] == offset:
            offset = self._free.pop(at - 1)[0]
        insort(self._free, (offset, end))


def pages(length: int) -> int:
    return -(-length // PAGE) * PAGE
