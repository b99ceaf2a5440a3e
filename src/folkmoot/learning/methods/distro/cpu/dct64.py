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
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from folkmoot.learning.methods.distro.cpu.simd import LANES, VECTOR, N, data_of, fetch_line, spread
from folkmoot.learning.methods.distro.dct import halves, scales

QUARTER = N // 4

Load = Callable[[int], Any]
Store = Callable[[int, Any], None]


def _constant(x: Any) -> Any:
    return ir.Constant(VECTOR, [float(x)] * LANES)


def _times(b: Any, x: Any, factor: Any) -> Any:
    return b.fmul(x, _constant(factor))


def _apart(b: Any, x: Any, y: Any, factor: Any) -> tuple[Any, Any]:
    """Their sum, and their difference scaled."""
    return b.fadd(x, y), _times(b, b.fsub(x, y), factor)


def _together(b: Any, x: Any, y: Any, factor: Any) -> tuple[Any, Any]:
    """The reverse of `_apart`, but for a factor."""
    y = _times(b, y, factor)
    return b.fadd(x, y), b.fsub(x, y)


def _forward(b: Any, xs: list[Any]) -> list[Any]:
    n = len(xs)
    if n == 1:
        return xs
    pairs = [(xs[i], xs[n - 1 - i]) for i in range(n // 2)]
    even = _forward(b, [b.fadd(x, y) for x, y in pairs])
    odd = [_times(b, b.fsub(x, y), f) for (x, y), f in zip(pairs, halves(n), strict=True)]
    odd = _forward(b, odd)
    odd = [b.fadd(x, y) for x, y in pairwise(odd)] + odd[-1:]
    return [x for pair in zip(even, odd, strict=True) for x in pair]


def _inverse(b: Any, xs: list[Any]) -> list[Any]:
    n = len(xs)
    if n == 1:
        return xs
    odd = xs[1::2]
    odd = odd[:1] + [b.fadd(y, x) for x, y in pairwise(odd)]
    pairs = zip(_inverse(b, xs[0::2]), _inverse(b, odd), halves(n), strict=True)
    made = [_together(b, x, y, f) for x, y, f in pairs]
    return [x for x, _ in made] + [y for _, y in reversed(made)]


class Scratch:
    """Vectors kept in memory. After `settle`, they are read from there and nowhere else."""

    def __init__(self, b: Any, count: int) -> None:
        self.b = b
        self.start = cgutils.alloca_once(b, ir.ArrayType(VECTOR, count))

    def _at(self, i: int) -> Any:
        return cgutils.gep_inbounds(self.b, self.start, 0, i)

    def load(self, i: int) -> Any:
        return self.b.load(self._at(i), align=LANES * 4)

    def store(self, i: int, x: Any) -> None:
        self.b.store(x, self._at(i), align=LANES * 4)

    def settle(self) -> None:
        """An instruction that does nothing and might, for all the compiler knows, touch memory."""
        kind = ir.FunctionType(ir.VoidType(), [self.start.type])
        self.b.asm(kind, "", "r,~{memory}", [self.start], side_effect=True)


def _forward64(b: Any, load: Load, store: Store) -> None:
    quarters = Scratch(b, N)
    whole, half = halves(N), halves(N // 2)
    for i in range(QUARTER):
        s, t = _apart(b, load(i), load(63 - i), whole[i])
        s2, t2 = _apart(b, load(31 - i), load(32 + i), whole[31 - i])
        for q, x in enumerate((*_apart(b, s, s2, half[i]), *_apart(b, t, t2, half[i]))):
            quarters.store(q * QUARTER + i, x)
    quarters.settle()

    def sixteen(q: int) -> list[Any]:
        return _forward(b, [quarters.load(q * QUARTER + i) for i in range(QUARTER)])

    for i, x in enumerate(sixteen(0)):
        store(4 * i, x)
    quarters.settle()
    odd = sixteen(1)
    for i, x in enumerate([b.fadd(x, y) for x, y in pairwise(odd)] + odd[-1:]):
        store(4 * i + 2, x)
    quarters.settle()
    for i, x in enumerate(sixteen(2)):
        quarters.store(i, x)
    quarters.settle()
    odd = sixteen(3)
    for i, x in enumerate([b.fadd(x, y) for x, y in pairwise(odd)] + odd[-1:]):
        store(4 * i + 1, b.fadd(quarters.load(i), x))
        store(4 * i + 3, b.fadd(x, quarters.load(i + 1)) if i + 1 < QUARTER else x)


def _inverse64(b: Any, load: Load, store: Store) -> None:
    quarters = Scratch(b, N)
    whole, half = halves(N), halves(N // 2)

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
        quarters.settle()
    for i in range(QUARTER):
        parts = [quarters.load(q * QUARTER + i) for q in range(4)]
        s, s2 = _together(b, parts[0], parts[1], half[i])
        t, t2 = _together(b, parts[2], parts[3], half[i])
        for at, x in zip((i, 63 - i), _together(b, s, t, whole[i]), strict=True):
            store(at, x)
        for at, x in zip((31 - i, 32 + i), _together(b, s2, t2, whole[31 - i]), strict=True):
            store(at, x)


def _rows(b: Any, base: Any, first: Any, stride: Any) -> Callable[[int], Any]:
    """Where the eight values of row i lie; rows begin at base[first] and lie `stride` apart."""

    def address(i: int) -> Any:
        row = b.add(first, b.mul(stride, ir.Constant(stride.type, i)))
        return b.bitcast(b.gep(base, [row]), VECTOR.as_pointer())

    return address


def _emit(
    b: Any,
    source: Any,
    at: Any,
    stride: Any,
    inverse: bool,
    store: Store,
    soon: Callable[[int], Any] | None = None,
) -> None:
    """Transform 64 rows of eight and store each as it is done. Between, ask for the 32 lines of
    eight other rows: one by one, because memory answers only so many at a time."""
    factors, where = scales(N), _rows(b, source, at, stride)
    asked = set()

    def load(i: int) -> Any:
        if soon is not None and i % 2 == 0 and i not in asked:
            asked.add(i)
            start = b.bitcast(soon(i // 8), ir.FloatType().as_pointer())
            fetch_line(b, b.gep(start, [ir.Constant(ir.IntType(32), i // 2 % 4 * 16)]))
        x = b.load(where(i), align=4)
        return _times(b, x, factors[i]) if inverse else x

    if inverse:
        _inverse64(b, load, store)
    else:
        _forward64(b, load, lambda i, x: store(i, _times(b, x, factors[i])))


def _transform(inverse: bool) -> Any:
    """f(source, at, stride, target, to, soon, soon_at, soon_stride): transform eight columns, the
    first beginning at source[at], with rows `stride` apart, to those that begin at target[to], with
    rows of 64. They may be the same. Eight rows from soon[soon_at] on are asked for meanwhile."""

    @intrinsic
    def transform(
        typing: Any, source: Any, at: Any, stride: Any, target: Any, to: Any,
        soon: Any, soon_at: Any, soon_stride: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
            source, target, soon = data_of(context, b, sig, args, (0, 3, 5))
            there = _rows(b, target, args[4], ir.Constant(args[4].type, N))
            ahead = _rows(b, soon, args[6], args[7])

            def store(i: int, x: Any) -> None:
                b.store(x, there(i), align=4)

            _emit(b, source, args[1], args[2], inverse, store, ahead)
            return context.get_dummy_value()

        whole = types.intp
        return types.void(source, whole, whole, target, whole, soon, whole, whole), codegen

    return transform


dct64 = _transform(inverse=False)
idct64 = _transform(inverse=True)


def _idct64_here(typing: Any, x: Any, at: Any) -> Any:
    """Transform back, in place, eight columns of a matrix with rows of 64; they begin at x[at]."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        (data,) = data_of(context, b, sig, args, (0,))
        width = ir.Constant(args[1].type, N)
        there = _rows(b, data, args[1], width)

        def store(i: int, x: Any) -> None:
            b.store(x, there(i), align=4)

        _emit(b, data, args[1], width, True, store)
        return context.get_dummy_value()

    return types.void(x, types.intp), codegen


idct64_here: Any = intrinsic(_idct64_here)


def _dct64_onto(
    typing: Any, source: Any, at: Any, target: Any, to: Any, keep: Any, add: Any,
    soon: Any, soon_at: Any, soon_stride: Any,
) -> Any:  # fmt: skip
    """Transform eight columns, the first beginning at source[at], and add them to those that begin
    at target[to]: target ← target · keep + transformed · add. Both have rows of 64. Eight rows from
    soon[soon_at] on are asked for meanwhile."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        source, target, soon = data_of(context, b, sig, args, (0, 2, 6))
        width = ir.Constant(args[1].type, N)
        there, ahead = _rows(b, target, args[3], width), _rows(b, soon, args[7], args[8])
        keep, add = spread(b, args[4]), spread(b, args[5])

        def store(i: int, x: Any) -> None:
            kept = b.fmul(b.load(there(i), align=4), keep)
            b.store(b.fadd(kept, b.fmul(x, add)), there(i), align=4)

        _emit(b, source, args[1], width, False, store, ahead)
        return context.get_dummy_value()

    whole, single = types.intp, types.float32
    return types.void(source, whole, target, whole, single, single, soon, whole, whole), codegen


dct64_onto: Any = intrinsic(_dct64_onto)
