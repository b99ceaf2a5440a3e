"""A short stand-in for a payload, by which witnesses compare directions (a count sketch).

Every value is added, with a sign, to one of a few thousand sums; its place alone decides which, and
with which sign. The cosine of two sketches is that of what they stand for, give or take 1/√SUMS, so
payloads of any size are compared at the same small cost. All clients make the same bytes of the
same payload:

    energy   float32     root of the sum of squares of the values as they were sent
    sums     int16 each  the largest made 32,767

`core/coordinator/client/screening.py` says what is concluded from them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from folkmoot.core.coordinator.client.screening import SUMS

_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(33)
_SIGN, _SUM = np.uint64(63), np.uint64(63 - (SUMS - 1).bit_length())
_MASK = np.uint64(SUMS - 1)
_PIECE = 1 << 20
Sums = npt.NDArray[np.float64]


def empty_sums() -> Sums:
    return np.zeros(SUMS)


def add(sums: Sums, place: npt.NDArray[np.int64], value: npt.NDArray[np.float32]) -> None:
    """Add values, in the order given, to the sums of their places."""
    mixed = place.astype(np.uint64)
    mixed ^= mixed >> _SECOND
    mixed *= _FIRST
    mixed ^= mixed >> _SECOND
    mixed *= _FIRST
    signed = np.where(mixed >> _SIGN, -value, value)
    where = ((mixed >> _SUM) & _MASK).astype(np.int64)
    np.add.at(sums, where, signed.astype(np.float64))


def encode(sums: Sums, squares: float) -> bytes:
    largest = float(np.abs(sums).max())
    scaled = np.rint(sums * (32767.0 / largest)) if largest else sums
    return np.float32(np.sqrt(squares)).tobytes() + scaled.astype("<i2").tobytes()


def of_values(place: npt.NDArray[np.int64] | None, value: npt.NDArray[np.float32]) -> bytes:
    """The sketch of values at their places, or of all values one after the other."""
    sums, squares = empty_sums(), 0.0
    for first in range(0, len(value), _PIECE):
        part = value[first : first + _PIECE]
        where = np.arange(first, first + len(part)) if place is None else place[first:][: len(part)]
        add(sums, where, part)
        squares += float(np.cumsum(part.astype(np.float64) ** 2)[-1])
    return encode(sums, squares)
