"""How a model's parameters are cut into chunks, and where every chunk lives.

All parameters (sorted by name) lie one after the other in one flat buffer. A matrix is cut into
h × w chunks, h and w being the largest divisors of its last two dimensions up to the target;
leading dimensions are a stack of matrices; a vector is cut into 1 × w chunks. Chunks of the same
shape, from all parameters, form a *group*: they are transformed together. Coefficients and wire go
group by group, chunk by chunk, so a chunk's coefficients are contiguous. All clients make the same
plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import msgspec
import numpy as np
import numpy.typing as npt
from blake3 import blake3

IntArray = npt.NDArray[np.int64]


def largest_divisor(n: int, target: int) -> int:
    """The largest divisor of n that is at most `target`; 0 for n = 0."""
    if n <= target:
        return n
    below = (d for d in range(1, min(target, math.isqrt(n)) + 1) if n % d == 0)
    return max(c for d in below for c in (d, n // d) if c <= target)


class Group(msgspec.Struct, frozen=True):
    """All chunks of one shape. `first` counts chunks, `start` coefficients, `entry` sent values."""

    h: int
    w: int
    k: int
    index_bits: int
    """0 when a chunk is sent whole: its indices are then 0, 1, 2, …"""
    count: int
    first: int
    start: int
    entry: int

    @property
    def size(self) -> int:
        return self.h * self.w


class Slot(msgspec.Struct, frozen=True):
    """Where one parameter lives: weights in the flat buffer, chunks in its group."""

    name: str
    shape: tuple[int, ...]
    offset: int
    group: int
    first: int
    chunks: int


class Plan(msgspec.Struct, frozen=True, eq=False):
    slots: list[Slot]
    groups: list[Group]
    size: int
    """Parameters in all, and so coefficients in all."""
    entries: int
    """Values that one payload carries."""
    bits: int
    fingerprint: bytes
    """Eight bytes that differ when names, shapes, chunk, k or bits differ."""
    offset: IntArray
    """Per chunk: where its first weight is in the flat buffer …"""
    stride: IntArray
    """… and how far apart its rows are."""
    owner: IntArray
    """Per chunk: the position of its parameter in `slots`."""


def as_matrices(shape: Sequence[int]) -> tuple[int, int, int]:
    """A shape as (how many matrices, rows, columns); vectors and scalars have one row."""
    if len(shape) < 2:
        return 1, 1, math.prod(shape)
    return math.prod(shape[:-2]), shape[-2], shape[-1]


def _chunk_offsets(shape: Sequence[int], h: int, w: int) -> IntArray:
    stack, rows, columns = as_matrices(shape)
    tops = np.arange(0, stack * rows, h, dtype=np.int64) * columns
    lefts = np.arange(0, columns, w, dtype=np.int64)
    return (tops[:, None] + lefts[None, :]).reshape(-1)


def make_plan(shapes: Sequence[tuple[str, Sequence[int]]], chunk: int, k: int, bits: int) -> Plan:
    """`shapes` sorted by name. Parameters without elements take no part."""
    sides = {}
    for name, shape in shapes:
        _, rows, columns = as_matrices(shape)
        if math.prod(shape):
            sides[name] = largest_divisor(rows, chunk), largest_divisor(columns, chunk)
    kinds = sorted(set(sides.values()), reverse=True)
    groups: list[Group] = []
    slots: dict[str, Slot] = {}
    ends = accumulate(math.prod(shape) for _, shape in shapes)
    starts = {n: end - math.prod(s) for (n, s), end in zip(shapes, ends, strict=True)}
    first = start = entry = 0
    for number, (h, w) in enumerate(kinds):
        members = [(n, tuple(s)) for n, s in shapes if sides.get(n) == (h, w)]
        count = 0
        for name, shape in members:
            chunks = math.prod(shape) // (h * w)
            slots[name] = Slot(name, shape, starts[name], number, first + count, chunks)
            count += chunks
        sent = min(k, h * w)
        index_bits = 0 if sent == h * w else (h * w - 1).bit_length()
        groups.append(Group(h, w, sent, index_bits, count, first, start, entry))
        first, start, entry = first + count, start + count * h * w, entry + count * sent
    return _with_tables(sorted(slots.values(), key=lambda s: s.name), groups, chunk, k, bits)


def _with_tables(slots: list[Slot], groups: list[Group], chunk: int, k: int, bits: int) -> Plan:
    chunks = sum(g.count for g in groups)
    offset, stride, owner = (np.zeros(chunks, np.int64) for _ in range(3))
    for position, slot in enumerate(slots):
        where = slice(slot.first, slot.first + slot.chunks)
        group = groups[slot.group]
        offset[where] = slot.offset + _chunk_offsets(slot.shape, group.h, group.w)
        stride[where] = as_matrices(slot.shape)[2]
        owner[where] = position
    described = msgspec.json.encode([[[s.name, s.shape] for s in slots], chunk, k, bits])
    return Plan(
        slots=slots,
        groups=groups,
        size=sum(g.count * g.size for g in groups),
        entries=sum(g.count * g.k for g in groups),
        bits=bits,
        fingerprint=blake3(described).digest(length=8),
        offset=offset,
        stride=stride,
        owner=owner,
    )
