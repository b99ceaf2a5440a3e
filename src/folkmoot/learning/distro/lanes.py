"""The 64-point transform as straight-line vector code: Lee's recursion, unrolled while compiling.

`dct64` and `idct64` transform eight neighbouring columns at once, one in each lane of a vector. The
recursion below runs when numba compiles; what it leaves behind is some 700 additions and
multiplications without a loop, those of dct.py in its order, never fused, hence with its bits.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from folkmoot.learning.distro.dct import halves, scales

N = 64
LANES = 8
_VECTOR = ir.VectorType(ir.FloatType(), LANES)


def _constant(x: Any) -> Any:
    return ir.Constant(_VECTOR, [float(x)] * LANES)


def _forward(b: Any, xs: list[Any]) -> list[Any]:
    n = len(xs)
    if n == 1:
        return xs
    pairs = [(xs[i], xs[n - 1 - i]) for i in range(n // 2)]
    even = _forward(b, [b.fadd(x, y) for x, y in pairs])
    factors = halves(n)
    odd = [b.fmul(b.fsub(x, y), _constant(f)) for (x, y), f in zip(pairs, factors, strict=True)]
    odd = _forward(b, odd)
    odd = [b.fadd(x, y) for x, y in pairwise(odd)] + odd[-1:]
    return [x for pair in zip(even, odd, strict=True) for x in pair]


def _inverse(b: Any, xs: list[Any]) -> list[Any]:
    n = len(xs)
    if n == 1:
        return xs
    odd = xs[1::2]
    odd = odd[:1] + [b.fadd(y, x) for x, y in pairwise(odd)]
    top = _inverse(b, xs[0::2])
    factors = halves(n)
    mirrored = [b.fmul(x, _constant(f)) for x, f in zip(_inverse(b, odd), factors, strict=True)]
    first = [b.fadd(x, y) for x, y in zip(top, mirrored, strict=True)]
    last = [b.fsub(x, y) for x, y in zip(top, mirrored, strict=True)]
    return first + last[::-1]


def _transposed(b: Any, rows: list[Any]) -> list[Any]:
    """Eight vectors as the columns they make: three perfect shuffles."""
    low = [i // 2 + (i % 2) * LANES for i in range(LANES)]
    high = [x + LANES // 2 for x in low]
    masks = [ir.Constant(ir.VectorType(ir.IntType(32), LANES), m) for m in (low, high)]
    for _ in range(3):
        half = LANES // 2
        zipped = ((rows[i], rows[i + half], m) for i in range(half) for m in masks)
        rows = [b.shuffle_vector(x, y, m) for x, y, m in zipped]
    return rows


def _emit(context: Any, b: Any, sig: Any, args: Any, inverse: bool, transpose: bool) -> Any:
    source, at, stride, target, to = args
    source = context.make_array(sig.args[0])(context, b, source).data
    target = context.make_array(sig.args[3])(context, b, target).data

    def address(base: Any, index: Any) -> Any:
        return b.bitcast(b.gep(base, [index]), _VECTOR.as_pointer())

    def plus(index: Any, rows: int, width: Any) -> Any:
        return b.add(index, b.mul(width, ir.Constant(width.type, rows)))

    width = ir.Constant(at.type, N)
    xs = [b.load(address(source, plus(at, i, stride)), align=4) for i in range(N)]
    factors = [_constant(f) for f in scales(N)]
    if inverse:
        xs = _inverse(b, [b.fmul(x, f) for x, f in zip(xs, factors, strict=True)])
    else:
        xs = [b.fmul(x, f) for x, f in zip(_forward(b, xs), factors, strict=True)]
    if not transpose:
        for i, x in enumerate(xs):
            b.store(x, address(target, plus(to, i, width)), align=4)
        return context.get_dummy_value()
    for first in range(0, N, LANES):
        for lane, x in enumerate(_transposed(b, xs[first : first + LANES])):
            where = b.add(plus(to, lane, width), ir.Constant(to.type, first))
            b.store(x, address(target, where), align=4)
    return context.get_dummy_value()


def _transform(inverse: bool, transpose: bool) -> Any:
    """f(source, at, stride, target, to): rows of 64 columns, eight columns from `at` on. Written
    plain, the target is addressed from the same column (`to`); transposed, from row `to` / 64."""

    @intrinsic
    def transform(typing: Any, source: Any, at: Any, stride: Any, target: Any, to: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _emit(context, builder, sig, args, inverse, transpose)

        return types.void(source, types.intp, types.intp, target, types.intp), codegen

    return transform


dct64 = _transform(inverse=False, transpose=False)
dct64_transposed = _transform(inverse=False, transpose=True)
idct64 = _transform(inverse=True, transpose=False)
idct64_transposed = _transform(inverse=True, transpose=True)


def _address(b: Any, base: Any, index: Any, by: int) -> Any:
    where = b.gep(base, [b.add(index, ir.Constant(index.type, by))])
    return b.bitcast(where, _VECTOR.as_pointer())


def _emit_products(context: Any, b: Any, sig: Any, args: Any, width: int) -> Any:
    made = [context.make_array(sig.args[i])(context, b, args[i]).data for i in (0, 2, 4)]
    weights, rows, target = made
    at, first, to = args[1], args[3], args[5]
    nowhere = ir.Constant(_VECTOR, ir.Undefined)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)

    def spread(i: int) -> Any:
        weight = b.load(b.gep(weights, [b.add(at, ir.Constant(at.type, i))]))
        alone = b.insert_element(nowhere, weight, ir.Constant(ir.IntType(32), 0))
        return b.shuffle_vector(alone, alone, everywhere)

    factors = [[spread(line * N + i) for i in range(4)] for line in range(2)]
    for c in range(0, width, LANES):
        values = [b.load(_address(b, rows, first, i * N + c), align=4) for i in range(4)]
        for line in range(2):
            where = _address(b, target, to, line * N + c)
            total = b.load(where, align=4)
            for factor, value in zip(factors[line], values, strict=True):
                term = b.fmul(factor, value, flags=("contract",))
                total = b.fadd(total, term, flags=("contract",))
            b.store(total, where, align=4)
    return context.get_dummy_value()


def _products(width: int) -> Any:
    """f(weights, at, rows, first, target, to): to `width` values of two neighbouring rows of
    `target`, from `to` on, add the sum of four rows, from `first` on, times four weights from `at`
    on, or those a row further. All matrices have rows of 64.

    Products and sums may be fused: for callers whose sums are exact in any case."""

    @intrinsic
    def products(
        typing: Any, weights: Any, at: Any, rows: Any, first: Any, target: Any, to: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _emit_products(context, builder, sig, args, width)

        kinds = (weights, types.intp, rows, types.intp, target, types.intp)
        return types.void(*kinds), codegen

    return products


add_64, add_48, add_32, add_16 = (_products(width) for width in (64, 48, 32, 16))


def _turn8(typing: Any, source: Any, at: Any, target: Any, to: Any) -> Any:
    """Transpose 8 × 8 values of a matrix with rows of 64 into another."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        source = context.make_array(sig.args[0])(context, b, args[0]).data
        target = context.make_array(sig.args[2])(context, b, args[2]).data
        xs = [b.load(_address(b, source, args[1], i * N), align=4) for i in range(LANES)]
        for i, x in enumerate(_transposed(b, xs)):
            b.store(x, _address(b, target, args[3], i * N), align=4)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp), codegen


turn8: Any = intrinsic(_turn8)


def _fetch(typing: Any, source: Any, at: Any) -> Any:
    """Ask for the cache line of source[at] ahead of its use; a hint, never a fault."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, b, args[0]).data
        byte = b.bitcast(b.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        hint = b.module.declare_intrinsic(
            "llvm.prefetch", [byte.type], ir.FunctionType(ir.VoidType(), [byte.type, *[number] * 3])
        )
        b.call(hint, [byte, *(ir.Constant(number, x) for x in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(source, types.intp), codegen


fetch: Any = intrinsic(_fetch)


def _word(typing: Any, source: Any, at: Any) -> Any:
    """The four bytes of `source` from `at` on, the first the lowest, wherever they lie."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, b, args[0]).data
        where = b.bitcast(b.gep(data, [args[1]]), ir.IntType(32).as_pointer())
        value = b.load(where, align=1)
        if sys.byteorder == "big":
            value = b.bswap(value)
        return b.zext(value, ir.IntType(64))

    return types.int64(source, types.intp), codegen


word: Any = intrinsic(_word)
