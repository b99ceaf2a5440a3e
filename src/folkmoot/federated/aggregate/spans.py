"""Walk a model block by block, on every core, with memory for a few blocks and no more.

Blocks do not depend on each other, so which thread does which cannot change a bit of the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from folkmoot.federated.aggregate.checks import first_not_finite
from folkmoot.federated.model_file.layout import BLOCK, Array, ArrayMeta, Layout, ModelSink

THREADS = min(4, os.cpu_count() or 1)
#: Spans of `BLOCK` that a thread takes at once: neighbours belong to one piece of the file.
STRETCH = 8
#: Spans of `BLOCK` from which a second thread is worth starting: below, they mostly wait.
WORTH = 32


class ArraySpan(NamedTuple):
    """A run of elements of one array."""

    name: str
    meta: ArrayMeta
    start: int
    size: int


class CombineFailed(ValueError):
    """The updates could not be combined; the message says which value was wrong and where."""

    def __init__(self, reason: str, array: str = "", position: int = 0) -> None:
        super().__init__(reason)
        self.array, self.position = array, position


def spans(layout: Layout, block: int = BLOCK) -> Iterator[ArraySpan]:
    for name, meta in layout.items():
        for start in range(0, meta.size, block):
            yield ArraySpan(name, meta, start, min(block, meta.size - start))


def for_each_span(
    layout: Layout,
    worker: Callable[[], Callable[[ArraySpan], None]],
    block: int = BLOCK,
    reads: int = 1,
) -> None:
    """Do every span once. `worker` gives each thread a function with buffers of its own.

    `reads` says of how many models a span is read.
    """
    found, turn = list(spans(layout, block)), count()
    usual = max(1, block // BLOCK)  # spans in one of ours
    stretch = max(1, STRETCH // usual)
    todo = [found[first : first + stretch] for first in range(0, len(found), stretch)]

    def drain() -> None:
        work = worker()
        # What overflows is told by the value that it leaves: see `write_span`.
        with np.errstate(over="ignore", invalid="ignore"):
            take_turns(work)

    def take_turns(work: Callable[[ArraySpan], None]) -> None:
        # next() on a count is one step under the interpreter's lock: a shared queue for nothing.
        while (index := next(turn)) < len(todo):
            for span in todo[index]:
                work(span)

    threads = min(THREADS, len(todo), 1 + len(found) * usual * max(1, reads // 4) // WORTH)
    if threads <= 1:
        drain()
        return
    with ThreadPoolExecutor(threads) as pool:
        for finished in [pool.submit(drain) for _ in range(threads)]:
            finished.result()


def write_span(out: ModelSink, span: ArraySpan, values: Array) -> None:
    """Round float64 values to an array's own dtype and write them."""
    dtype = span.meta.numpy
    with np.errstate(over="ignore"):
        rounded = values.astype(dtype) if dtype.kind == "f" else to_integers(values, dtype)
    if (offset := first_not_finite(rounded)) is not None:
        raise CombineFailed(
            f"array {span.name!r} at flat position {span.start + offset} became "
            f"{values[offset]}, which {span.meta.dtype} cannot hold",
            span.name,
            span.start + offset,
        )
    out.write(span.name, span.start, rounded)


def to_integers(values: Array, dtype: np.dtype[Any]) -> Array:
    """Nearest whole numbers, halves to even; true from a half on."""
    if dtype.kind == "b":
        return values >= 0.5
    limits = np.iinfo(dtype)
    # float64 cannot hold 2**63 - 1: the next value below is the largest that casts safely.
    top = np.nextafter(float(limits.max), 0.0) if dtype.itemsize == 8 else float(limits.max)
    return np.clip(np.rint(values), float(limits.min), top).astype(dtype)
