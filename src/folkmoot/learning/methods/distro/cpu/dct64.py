"""The 64-point transform as straight-line vector code: Lee's recursion, unrolled while compiling.

`dct64` and `idct64` transform eight neighbouring columns at once, one in each lane of a vector.
What runs when numba compiles leaves behind some 700 additions and multiplications without a loop,
those of dct.py in its order, never fused, hence with its bits.

Sixty-four vectors do not fit a processor's registers, sixteen nearly do. So the two outer levels of
the recursion are done four vectors at a time, by way of memory, and between them are four
transforms of 16 points, each from registers to registers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from folkmoot.learning.methods.distro.cpu.simd import (
    FLOATS,
    SIMD_WIDTH,
    Array,
    Float32,
    Index,
    N,
    broadcast,
    instruction,
    prefetch_line,
)
from folkmoot.learning.methods.distro.dct import halving_factors, scales

QUARTER = N // 4

Load = Callable[[int], Any]
Store = Callable[[int, Any], None]


def _constant(x: Any) -> Any:
    return ir.Constant(FLOATS, [float(x)] * SIMD_WIDTH)


def _times(b: Any, x: Any, factor: Any) -> Any:
    return b.fmul(x, _constant(factor))


def _butterfly(b: Any, x: Any, y: Any, factor: Any) -> tuple[Any, Any]:
    """Their sum, and their difference scaled."""
    return b.fadd(x, y), _times(b, b.fsub(x, y), factor)


def _inverse_butterfly(b: Any, x: Any, y: Any, factor: Any) -> tuple[Any, Any]:
    """The reverse of `_butterfly`, but for a factor."""
    y = _times(b, y, factor)
    return b.fadd(x, y), b.fsub(x, y)


def _forward(b: Any, xs: list[Any]) -> list[Any]:
    n = len(xs)
    if n == 1:
        return xs
    pairs = [(xs[i], xs[n - 1 - i]) for i in range(n // 2)]
    even = _forward(b, [b.fadd(x, y) for x, y in pairs])
    odd = [_times(b, b.fsub(x, y), f) for (x, y), f in zip(pairs, halving_factors(n), strict=True)]
    odd = _forward(b, odd)
    odd = [b.fadd(x, y) for x, y in pairwise(odd)] + odd[-1:]
    return [x for pair in zip(even, odd, strict=True) for x in pair]


def _inverse(b: Any, xs: list[Any]) -> list[Any]:
    n = len(xs)
    if n == 1:
        return xs
    odd = xs[1::2]
    odd = odd[:1] + [b.fadd(y, x) for x, y in pairwise(odd)]
    pairs = zip(_inverse(b, xs[0::2]), _inverse(b, odd), halving_factors(n), strict=True)
    made = [_inverse_butterfly(b, x, y, f) for x, y, f in pairs]
    return [x for x, _ in made] + [y for _, y in reversed(made)]


class Scratch:
    """Vectors kept in memory. After `fence`, they are read from there and nowhere else."""

    def __init__(self, b: Any, count: int) -> None:
        self.b = b
        self.start = cgutils.alloca_once(b, ir.ArrayType(FLOATS, count))

    def _at(self, i: int) -> Any:
        return cgutils.gep_inbounds(self.b, self.start, 0, i)

    def load(self, i: int) -> Any:
        return self.b.load(self._at(i), align=SIMD_WIDTH * 4)

    def store(self, i: int, x: Any) -> None:
        self.b.store(x, self._at(i), align=SIMD_WIDTH * 4)

    def fence(self) -> None:
        """An instruction that does nothing and might, for all the compiler knows, touch memory."""
        kind = ir.FunctionType(ir.VoidType(), [self.start.type])
        self.b.asm(kind, "", "r,~{memory}", [self.start], side_effect=True)


def _forward64(b: Any, load: Load, store: Store) -> None:
    quarters = Scratch(b, N)
    outer, inner = halving_factors(N), halving_factors(N // 2)
    for i in range(QUARTER):
        s, t = _butterfly(b, load(i), load(63 - i), outer[i])
        s2, t2 = _butterfly(b, load(31 - i), load(32 + i), outer[31 - i])
        for q, x in enumerate((*_butterfly(b, s, s2, inner[i]), *_butterfly(b, t, t2, inner[i]))):
            quarters.store(q * QUARTER + i, x)
    quarters.fence()

    def sixteen(q: int) -> list[Any]:
        return _forward(b, [quarters.load(q * QUARTER + i) for i in range(QUARTER)])

    for i, x in enumerate(sixteen(0)):
        store(4 * i, x)
    quarters.fence()
    odd = sixteen(1)
    for i, x in enumerate([b.fadd(x, y) for x, y in pairwise(odd)] + odd[-1:]):
        store(4 * i + 2, x)
    quarters.fence()
    for i, x in enumerate(sixteen(2)):
        quarters.store(i, x)
    quarters.fence()
    odd = sixteen(3)
    for i, x in enumerate([b.fadd(x, y) for x, y in pairwise(odd)] + odd[-1:]):
        store(4 * i + 1, b.fadd(quarters.load(i), x))
        store(4 * i + 3, b.fadd(x, quarters.load(i + 1)) if i + 1 < QUARTER else x)


def _inverse64(b: Any, load: Load, store: Store) -> None:
    quarters = Scratch(b, N)
    outer, inner = halving_factors(N), halving_factors(N // 2)

    def summed(i: int, apart: int) -> Any:
        """What an odd half starts with: its values, each with the one before."""
        return load(i) if i < apart else b.fadd(load(i), load(i - apart))

    def twice(i: int) -> Any:
        return summed(i, 2) if i < 4 else b.fadd(summed(i, 2), summed(i - 4, 2))

    firsts: list[Callable[[int], Any]] = [
        lambda j: load(4 * j),
        lambda j: summed(4 * j + 2, 4),
        lambda j: summed(4 * j + 1, 2),
        lambda j: twice(4 * j + 3),
    ]
    for q, first in enumerate(firsts):
        for i, x in enumerate(_inverse(b, [first(j) for j in range(QUARTER)])):
            quarters.store(q * QUARTER + i, x)
        quarters.fence()
    for i in range(QUARTER):
        parts = [quarters.load(q * QUARTER + i) for q in range(4)]
        s, s2 = _inverse_butterfly(b, parts[0], parts[1], inner[i])
        t, t2 = _inverse_butterfly(b, parts[2], parts[3], inner[i])
        for at, x in zip((i, 63 - i), _inverse_butterfly(b, s, t, outer[i]), strict=True):
            store(at, x)
        for at, x in zip(
            (31 - i, 32 + i), _inverse_butterfly(b, s2, t2, outer[31 - i]), strict=True
        ):
            store(at, x)


def _rows(b: Any, base: Any, first: Any, stride: Any) -> Callable[[int], Any]:
    """Where the eight values of row i lie; rows begin at base[first] and lie `stride` apart."""

    def address(i: int) -> Any:
        row = b.add(first, b.mul(stride, ir.Constant(stride.type, i)))
        return b.bitcast(b.gep(base, [row]), FLOATS.as_pointer())

    return address


def _emit(
    b: Any,
    source: Any,
    at: Any,
    stride: Any,
    inverse: bool,
    store: Store,
    ahead: Callable[[int], Any] | None = None,
) -> None:
    """Transform 64 rows of eight and store each as it is done. Between, prefetch the 32 lines of
    eight other rows: one by one, because memory answers only so many at a time."""
    factors, where = scales(N), _rows(b, source, at, stride)
    prefetched = set()

    def load(i: int) -> Any:
        if ahead is not None and i % 2 == 0 and i not in prefetched:
            prefetched.add(i)
            start = b.bitcast(ahead(i // 8), ir.FloatType().as_pointer())
            prefetch_line(b, b.gep(start, [ir.Constant(ir.IntType(32), i // 2 % 4 * 16)]))
        x = b.load(where(i), align=4)
        return _times(b, x, factors[i]) if inverse else x

    if inverse:
        _inverse64(b, load, store)
    else:
        _forward64(b, load, lambda i, x: store(i, _times(b, x, factors[i])))


def _transform(inverse: bool) -> Any:
    @instruction
    def transform(
        b: Any, source: Array, at: Index, stride: Index, target: Array, to: Index,
        ahead: Array, ahead_at: Index, ahead_stride: Index,
    ) -> None:  # fmt: skip
        """Transform eight columns, the first beginning at source[at], with rows `stride` apart, to
        those that begin at target[to], with rows of 64. They may be the same. Eight rows from
        ahead[ahead_at] on are prefetched."""
        there = _rows(b, target, to, ir.Constant(to.type, N))
        ahead_rows = _rows(b, ahead, ahead_at, ahead_stride)

        def store(i: int, x: Any) -> None:
            b.store(x, there(i), align=4)

        _emit(b, source, at, stride, inverse, store, ahead_rows)

    return transform


dct64 = _transform(inverse=False)
idct64 = _transform(inverse=True)


@instruction
def idct64_in_place(b: Any, x: Array, at: Index) -> None:
    """Transform back, in place, eight columns of a matrix with rows of 64; they begin at x[at]."""
    width = ir.Constant(at.type, N)
    there = _rows(b, x, at, width)

    def store(i: int, value: Any) -> None:
        b.store(value, there(i), align=4)

    _emit(b, x, at, width, True, store)


@instruction
def dct64_accumulate(
    b: Any, source: Array, at: Index, target: Array, to: Index, decay: Float32, scale: Float32,
    ahead: Array, ahead_at: Index, ahead_stride: Index,
) -> None:  # fmt: skip
    """Transform eight columns, the first beginning at source[at], and add them to those that begin
    at target[to]: target ← target · decay + transformed · scale. Both have rows of 64. Eight rows
    from ahead[ahead_at] on are prefetched meanwhile."""
    width = ir.Constant(at.type, N)
    there, ahead_rows = _rows(b, target, to, width), _rows(b, ahead, ahead_at, ahead_stride)
    decay, scale = broadcast(b, decay), broadcast(b, scale)

    def store(i: int, x: Any) -> None:
        decayed = b.fmul(b.load(there(i), align=4), decay)
        b.store(b.fadd(decayed, b.fmul(x, scale)), there(i), align=4)

    _emit(b, source, at, width, False, store, ahead_rows)
