"""Small pieces of vector code that the compiled kernels are made of: what numba has no word for.

Vectors hold eight neighbouring values, rows 64. The functions below with `b` run when numba
compiles and write instructions; those with `typing` are called from kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

N, SIMD_WIDTH = 64, 8
COLUMNS = range(0, N, SIMD_WIDTH)
FLOATS = ir.VectorType(ir.FloatType(), SIMD_WIDTH)
INTS = ir.VectorType(ir.IntType(32), SIMD_WIDTH)


def pointers(context: Any, b: Any, sig: Any, args: Any, which: tuple[int, ...]) -> list[Any]:
    """Where the values of some arguments, which are arrays, begin."""
    return [context.make_array(sig.args[i])(context, b, args[i]).data for i in which]


def address(b: Any, base: Any, index: Any, by: int) -> Any:
    where = b.gep(base, [b.add(index, ir.Constant(index.type, by))])
    return b.bitcast(where, FLOATS.as_pointer())


def broadcast(b: Any, x: Any, kind: Any = FLOATS) -> Any:
    """A vector whose lanes are all x."""
    nowhere = ir.Constant(kind, ir.Undefined)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), SIMD_WIDTH), [0] * SIMD_WIDTH)
    alone = b.insert_element(nowhere, x, ir.Constant(ir.IntType(32), 0))
    return b.shuffle_vector(alone, alone, everywhere)


def _transposed(b: Any, half: Callable[[int, int], Any]) -> list[Any]:
    """Eight rows of eight as the columns they make; `half(i, c)` loads four of row i, from c on.

    Rows i and i + 4 are loaded into one vector, so that nothing has to cross its middle."""

    def shuffle(x: Any, y: Any, order: tuple[int, ...]) -> Any:
        return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(ir.IntType(32), SIMD_WIDTH), order))

    columns = []
    for c in (0, 4):
        x, y, z, u = (
            shuffle(half(i, c), half(i + 4, c), tuple(range(SIMD_WIDTH))) for i in range(4)
        )
        low, high = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)
        first, last = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
        for part in (low, high):
            pair = shuffle(x, y, part), shuffle(z, u, part)
            columns += [shuffle(*pair, first), shuffle(*pair, last)]
    return columns


def _half(b: Any, base: Any) -> Any:
    """The four values at a pointer to float."""
    four = ir.VectorType(ir.FloatType(), SIMD_WIDTH // 2).as_pointer()
    return b.load(b.bitcast(base, four), align=4)


def _square(b: Any, data: Any, at: Any) -> list[Any]:
    """The columns of the 8 × 8 values that begin at data[at], in a matrix with rows of 64."""

    def half(i: int, c: int) -> Any:
        return _half(b, b.gep(data, [b.add(at, ir.Constant(at.type, i * N + c))]))

    return _transposed(b, half)


def _transpose8(typing: Any, source: Any, at: Any, target: Any, to: Any) -> Any:
    """Transpose 8 × 8 values of a matrix with rows of 64 into another, or in place."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        source, target = pointers(context, b, sig, args, (0, 2))
        for i, x in enumerate(_square(b, source, args[1])):
            b.store(x, address(b, target, args[3], i * N), align=4)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp), codegen


transpose8: Any = intrinsic(_transpose8)


def _swap_transpose8(typing: Any, x: Any, at: Any, to: Any) -> Any:
    """Transpose two times 8 × 8 values of a matrix with rows of 64, each to the other's place."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        (data,) = pointers(context, b, sig, args, (0,))
        columns = _square(b, data, args[1]), _square(b, data, args[2])
        for place, made in zip((args[2], args[1]), columns, strict=True):
            for i, values in enumerate(made):
                b.store(values, address(b, data, place, i * N), align=4)
        return context.get_dummy_value()

    return types.void(x, types.intp, types.intp), codegen


swap_transpose8: Any = intrinsic(_swap_transpose8)


def prefetch_line(b: Any, pointer: Any) -> None:
    """Ask for a cache line ahead of its use; a hint, never a fault."""
    number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, *[number] * 3])
    hint = b.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    b.call(hint, [b.bitcast(pointer, byte), *(ir.Constant(number, x) for x in (0, 3, 1))])


def _prefetch(typing: Any, source: Any, at: Any) -> Any:
    """Ask for the cache line of source[at]."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        (data,) = pointers(context, b, sig, args, (0,))
        prefetch_line(b, b.gep(data, [args[1]]))
        return context.get_dummy_value()

    return types.void(source, types.intp), codegen


prefetch: Any = intrinsic(_prefetch)


def _load_word(typing: Any, source: Any, at: Any) -> Any:
    """The four bytes of `source` from `at` on, the first the lowest, wherever they lie."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, b, args[0]).data
        where = b.bitcast(b.gep(data, [args[1]]), ir.IntType(32).as_pointer())
        value = b.load(where, align=1)
        if sys.byteorder == "big":
            value = b.bswap(value)
        return b.zext(value, ir.IntType(64))

    return types.int64(source, types.intp), codegen


load_word: Any = intrinsic(_load_word)


def _step_row(typing: Any, x: Any, at: Any, u: Any, decay: Any, scale: Any, untouched: Any) -> Any:
    """64 values of x from `at` on ← themselves times `decay`, plus u times `scale`; the bits
    that are set in `untouched` stay what they are."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x, u = pointers(context, b, sig, args, (0, 2))
        decay, scale, start = (
            broadcast(b, args[3]),
            broadcast(b, args[4]),
            ir.Constant(args[1].type, 0),
        )
        untouched = broadcast(b, args[5], INTS)
        for c in COLUMNS:
            place = address(b, x, args[1], c)
            here = b.load(place, align=4)
            by = b.fmul(b.load(address(b, u, start, c), align=4), scale)
            moved = b.fadd(b.fmul(here, decay), by)
            changes = b.xor(*(b.bitcast(v, INTS) for v in (here, moved)))
            made = b.xor(b.bitcast(moved, INTS), b.and_(changes, untouched))
            b.store(b.bitcast(made, FLOATS), place, align=4)
        return context.get_dummy_value()

    intp, float32 = types.intp, types.float32
    return types.void(x, intp, u, float32, float32, types.int32), codegen


step_row: Any = intrinsic(_step_row)


def _copy_row(typing: Any, x: Any, at: Any, target: Any, to: Any) -> Any:
    """Copy 64 values."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x, target = pointers(context, b, sig, args, (0, 2))
        for c in COLUMNS:
            b.store(
                b.load(address(b, x, args[1], c), align=4),
                address(b, target, args[3], c),
                align=4,
            )
        return context.get_dummy_value()

    return types.void(x, types.intp, target, types.intp), codegen


copy_row: Any = intrinsic(_copy_row)
