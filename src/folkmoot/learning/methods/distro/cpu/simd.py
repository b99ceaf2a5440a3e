"""Small pieces of vector code that the compiled kernels are made of: what numba has no word for.

Vectors hold eight neighbouring values, rows 64. The functions below with `b` run when numba
compiles and write instructions; an `instruction` is called from kernels.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_type_hints

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

N, SIMD_WIDTH = 64, 8
COLUMNS = range(0, N, SIMD_WIDTH)
FLOATS = ir.VectorType(ir.FloatType(), SIMD_WIDTH)
INTS = ir.VectorType(ir.IntType(32), SIMD_WIDTH)

Array = Any
Index = Annotated[Any, types.intp]
Int32 = Annotated[Any, types.int32]
Int64 = Annotated[Any, types.int64]
Float32 = Annotated[Any, types.float32]


def instruction(write: Callable[..., Any]) -> Any:
    """What kernels call, from a function that writes its code: that is given the builder, where
    the values of arrays begin, and numbers of the types that its annotations say."""
    hints = get_type_hints(write, include_extras=True).values()
    _, *said, returned = (getattr(hint, "__metadata__", (None,))[0] for hint in hints)

    @functools.wraps(write)
    def declare(typing: Any, *given: Any) -> Any:
        kinds = [kind or array for kind, array in zip(said, given, strict=True)]
        return (returned or types.void)(*kinds), codegen

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        given = zip(signature.args, args, strict=True)
        made = write(b, *(_value(context, b, kind, arg) for kind, arg in given))
        return context.get_dummy_value() if made is None else made

    return intrinsic(declare)


def _value(context: Any, b: Any, kind: Any, arg: Any) -> Any:
    is_array = isinstance(kind, types.Array)
    return context.make_array(kind)(context, b, arg).data if is_array else arg


def repeat(
    b: Any, starts: Sequence[Any], turn: Callable[..., tuple[Any, Sequence[Any]]], begin: Any = None
) -> Sequence[Any]:
    """A loop: `turn`, given its values, says whether there is another turn, and with which values.

    Returns those of the last; `starts`, if it is not to `begin` at all."""
    before, loop, after = b.block, b.append_basic_block("each"), b.append_basic_block("done")
    b.branch(loop) if begin is None else b.cbranch(begin, loop, after)
    b.position_at_end(loop)
    phis = [b.phi(start.type) for start in starts]
    again, values = turn(*phis)
    b.cbranch(again, loop, after)
    b.position_at_end(after)
    made = [] if begin is None else [b.phi(start.type) for start in starts]
    for merged in filter(None, (phis, made)):
        for phi, start, value in zip(merged, starts, values, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(value, loop)
    return made or values


def address(b: Any, base: Any, index: Any, by: int) -> Any:
    where = b.gep(base, [b.add(index, ir.Constant(index.type, by))])
    return b.bitcast(where, FLOATS.as_pointer())


def broadcast(b: Any, x: Any, kind: Any = FLOATS) -> Any:
    """A vector whose lanes are all x."""
    nowhere = ir.Constant(kind, ir.Undefined)
    everywhere = ir.Constant(INTS, [0] * SIMD_WIDTH)
    alone = b.insert_element(nowhere, x, ir.Constant(ir.IntType(32), 0))
    return b.shuffle_vector(alone, alone, everywhere)


def _square(b: Any, data: Any, at: Any) -> list[Any]:
    """The columns of the 8 × 8 values that begin at data[at], in a matrix with rows of 64.

    Rows i and i + 4 are loaded into one vector, so that nothing has to cross its middle."""
    four = ir.VectorType(ir.FloatType(), SIMD_WIDTH // 2).as_pointer()

    def half(i: int, c: int) -> Any:
        place = b.gep(data, [b.add(at, ir.Constant(at.type, i * N + c))])
        return b.load(b.bitcast(place, four), align=4)

    def shuffle(x: Any, y: Any, order: tuple[int, ...]) -> Any:
        return b.shuffle_vector(x, y, ir.Constant(INTS, order))

    columns = []
    whole = tuple(range(SIMD_WIDTH))
    low, high = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)
    first, last = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
    for c in (0, 4):
        x, y, z, u = (shuffle(half(i, c), half(i + 4, c), whole) for i in range(4))
        for part in (low, high):
            pair = shuffle(x, y, part), shuffle(z, u, part)
            columns += [shuffle(*pair, first), shuffle(*pair, last)]
    return columns


@instruction
def transpose8(b: Any, source: Array, at: Index, target: Array, to: Index) -> None:
    """Transpose 8 × 8 values of a matrix with rows of 64 into another, or in place."""
    for i, x in enumerate(_square(b, source, at)):
        b.store(x, address(b, target, to, i * N), align=4)


@instruction
def swap_transpose8(b: Any, x: Array, at: Index, to: Index) -> None:
    """Transpose two times 8 × 8 values of a matrix with rows of 64, each to the other's place."""
    columns = _square(b, x, at), _square(b, x, to)
    for place, made in zip((to, at), columns, strict=True):
        for i, values in enumerate(made):
            b.store(values, address(b, x, place, i * N), align=4)


def prefetch_line(b: Any, pointer: Any) -> None:
    """Ask for a cache line ahead of its use; a hint, never a fault."""
    number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, *[number] * 3])
    hint = b.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    b.call(hint, [b.bitcast(pointer, byte), *(ir.Constant(number, x) for x in (0, 3, 1))])


@instruction
def prefetch(b: Any, source: Array, at: Index) -> None:
    """Ask for the cache line of source[at]."""
    prefetch_line(b, b.gep(source, [at]))


@instruction
def load_word(b: Any, source: Array, at: Index) -> Int64:
    """The four bytes of `source` from `at` on, the first the lowest, wherever they lie."""
    value = b.load(b.bitcast(b.gep(source, [at]), ir.IntType(32).as_pointer()), align=1)
    if sys.byteorder == "big":
        value = b.bswap(value)
    return b.zext(value, ir.IntType(64))


@instruction
def step_row(
    b: Any, x: Array, at: Index, u: Array, decay: Float32, scale: Float32, untouched: Int32
) -> None:
    """64 values of x from `at` on ← themselves times `decay`, plus u times `scale`; the bits
    that are set in `untouched` stay what they are."""
    decay, scale, untouched = (
        broadcast(b, decay),
        broadcast(b, scale),
        broadcast(b, untouched, INTS),
    )
    start = ir.Constant(at.type, 0)
    for c in COLUMNS:
        place = address(b, x, at, c)
        here = b.load(place, align=4)
        by = b.fmul(b.load(address(b, u, start, c), align=4), scale)
        moved = b.fadd(b.fmul(here, decay), by)
        changes = b.xor(*(b.bitcast(v, INTS) for v in (here, moved)))
        made = b.xor(b.bitcast(moved, INTS), b.and_(changes, untouched))
        b.store(b.bitcast(made, FLOATS), place, align=4)


@instruction
def copy_row(b: Any, x: Array, at: Index, target: Array, to: Index) -> None:
    """Copy 64 values."""
    for c in COLUMNS:
        b.store(b.load(address(b, x, at, c), align=4), address(b, target, to, c), align=4)
