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
from functools import partial
from itertools import pairwise
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from folkmoot.learning.distro.dct import halves, scales

N = 64
LANES = 8
VECTOR = ir.VectorType(ir.FloatType(), LANES)
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
    odd = [
        _times(b, b.fsub(x, y), f) for (x, y), f in zip(pairs, halves(n), strict=True)
    ]
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

    def half(self, first: int, i: int, c: int) -> Any:
        """Four values of vector first + i, from the c-th on."""
        start = self.b.bitcast(self._at(first + i), ir.FloatType().as_pointer())
        return half_vector(self.b, self.b.gep(start, [ir.Constant(ir.IntType(32), c)]))

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


def turned(b: Any, half: Callable[[int, int], Any]) -> list[Any]:
    """Eight rows of eight as the columns they make; `half(i, c)` loads four of row i, from c on.

    Rows i and i + 4 are loaded into one vector, so that nothing has to cross its middle."""

    def shuffle(x: Any, y: Any, order: tuple[int, ...]) -> Any:
        return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(ir.IntType(32), LANES), order))

    columns = []
    for c in (0, 4):
        x, y, z, u = (shuffle(half(i, c), half(i + 4, c), tuple(range(LANES))) for i in range(4))
        low, high = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)
        first, last = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
        for part in (low, high):
            pair = shuffle(x, y, part), shuffle(z, u, part)
            columns += [shuffle(*pair, first), shuffle(*pair, last)]
    return columns


def half_vector(b: Any, base: Any) -> Any:
    """The four values at a pointer to float."""
    four = ir.VectorType(ir.FloatType(), LANES // 2).as_pointer()
    return b.load(b.bitcast(base, four), align=4)


def _rows(b: Any, base: Any, first: Any, stride: Any) -> Callable[[int], Any]:
    """Where the eight values of row i lie; rows begin at base[first] and lie `stride` apart."""

    def address(i: int) -> Any:
        row = b.add(first, b.mul(stride, ir.Constant(stride.type, i)))
        return b.bitcast(b.gep(base, [row]), VECTOR.as_pointer())

    return address


def _fetch(b: Any, pointer: Any) -> None:
    """Ask for a cache line ahead of its use; a hint, never a fault."""
    number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, *[number] * 3])
    hint = b.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    b.call(hint, [b.bitcast(pointer, byte), *(ir.Constant(number, x) for x in (0, 3, 1))])


def _emit(
    b: Any, source: Any, at: Any, stride: Any, inverse: bool, store: Store,
    soon: Callable[[int], Any] | None = None,
) -> None:
    """Transform 64 rows of eight and store each as it is done. Between, ask for the 32 lines of
    eight other rows: one by one, because memory answers only so many at a time."""
    factors, where = scales(N), _rows(b, source, at, stride)
    asked = set()

    def load(i: int) -> Any:
        if soon is not None and i % 2 == 0 and i not in asked:
            asked.add(i)
            line, row = i // 2 % 4, i // 8
            _fetch(b, b.gep(b.bitcast(soon(row), ir.FloatType().as_pointer()), [ir.Constant(ir.IntType(32), 16 * line)]))
        x = b.load(where(i), align=4)
        return _times(b, x, factors[i]) if inverse else x

    if inverse:
        _inverse64(b, load, store)
    else:
        _forward64(b, load, lambda i, x: store(i, _times(b, x, factors[i])))


def _data(context: Any, b: Any, sig: Any, args: Any, which: int) -> Any:
    return context.make_array(sig.args[which])(context, b, args[which]).data


def _transform(inverse: bool) -> Any:
    """f(source, at, stride, target, to): transform eight columns, of which the first begins at
    source[at], and write what they become as rows of 64, of which the first begins at target[to].
    """

    @intrinsic
    def transform(typing: Any, source: Any, at: Any, stride: Any, target: Any, to: Any, soon: Any, soon_at: Any, soon_stride: Any) -> Any:
        def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
            source, target = (_data(context, b, sig, args, i) for i in (0, 3))
            aside = Scratch(b, N)
            soon = _rows(b, _data(context, b, sig, args, 5), args[6], args[7])
            _emit(b, source, args[1], args[2], inverse, aside.store, soon)
            aside.settle()
            width = ir.Constant(args[4].type, N)
            for first in range(0, N, LANES):
                where = _rows(b, target, b.add(args[4], ir.Constant(width.type, first)), width)
                halves_of = partial(aside.half, first)
                for lane, x in enumerate(turned(b, halves_of)):
                    b.store(x, where(lane), align=4)
            return context.get_dummy_value()

        whole = types.intp
        return types.void(source, whole, whole, target, whole, soon, whole, whole), codegen

    return transform


dct64_transposed = _transform(inverse=False)
idct64_transposed = _transform(inverse=True)


def _spread(b: Any, x: Any) -> Any:
    nowhere = ir.Constant(VECTOR, ir.Undefined)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    alone = b.insert_element(nowhere, x, ir.Constant(ir.IntType(32), 0))
    return b.shuffle_vector(alone, alone, everywhere)


def _onto(inverse: bool) -> Any:
    """f(source, at, onto, first, stride, target, keep, add): transform eight columns of a matrix
    with rows of 64, of which the first begins at source[at], and add them to other rows:
    target ← onto · keep + transformed · add. Those begin at `first` and lie `stride` apart."""

    @intrinsic
    def transform(
        typing: Any, source: Any, at: Any, onto: Any, first: Any, stride: Any, target: Any,
        keep: Any, add: Any, soon: Any, soon_at: Any, soon_stride: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
            source, onto, target = (_data(context, b, sig, args, i) for i in (0, 2, 5))
            here, there = (_rows(b, x, args[3], args[4]) for x in (onto, target))
            keep, add = _spread(b, args[6]), _spread(b, args[7])

            def store(i: int, x: Any) -> None:
                kept = b.fmul(b.load(here(i), align=4), keep)
                b.store(b.fadd(kept, b.fmul(x, add)), there(i), align=4)

            soon = _rows(b, _data(context, b, sig, args, 8), args[9], args[10])
            _emit(b, source, args[1], ir.Constant(args[1].type, N), inverse, store, soon)
            return context.get_dummy_value()

        whole, single = types.intp, types.float32
        kinds = (source, whole, onto, whole, whole, target, single, single, soon, whole, whole)
        return types.void(*kinds), codegen

    return transform


dct64_onto = _onto(inverse=False)


def _idct64(typing: Any, source: Any, at: Any, target: Any) -> Any:
    """Transform eight columns of a matrix with rows of 64 back; they begin at `at` in both."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        source, target = (_data(context, b, sig, args, i) for i in (0, 2))
        width = ir.Constant(args[1].type, N)
        there = _rows(b, target, args[1], width)
        _emit(b, source, args[1], width, True, lambda i, x: b.store(x, there(i), align=4))
        return context.get_dummy_value()

    return types.void(source, types.intp, target), codegen


idct64: Any = intrinsic(_idct64)
