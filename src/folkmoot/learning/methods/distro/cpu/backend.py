"""DisTrO's heavy steps for the CPU: the functions of reference.py, compiled, with the same bits.

Work is cut into batches of chunks, which share nothing, so the number of threads (torch's) changes
nothing but the time. Inside, one chunk at a time passes through all steps while it is in the cache.
Kernels run without the interpreter lock; numba compiles them at first use and keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from folkmoot.learning.methods.bfloat16 import Floats
from folkmoot.learning.methods.distro.backup import LOW_BYTE, WeightBackup
from folkmoot.learning.methods.distro.cpu import chunk_dct, kernels
from folkmoot.learning.methods.distro.cpu.packing import check_body as check_body
from folkmoot.learning.methods.distro.cpu.packing import pack as pack
from folkmoot.learning.methods.distro.cpu.sketch import sketch as sketch
from folkmoot.learning.methods.distro.orthogonal import largest_integer, output_factors
from folkmoot.learning.methods.distro.plan import Group, Plan
from folkmoot.learning.methods.distro.treatment import NORM, Stepping, inverse_rms
from folkmoot.learning.methods.distro.wire import GroupOffsets, Indices, sections

_BATCHES, _LEAST = 8, 1 << 18
"""A thread takes so many batches, of at least so many values: a call costs as much as some
thousands of values, and threads should end together."""
_NOTHING = np.zeros(0, np.float32)
T = TypeVar("T")
R = TypeVar("R")


class ChunkBatch(msgspec.Struct, frozen=True):
    """Chunks first … last of one group, and the parts of buffers that are theirs."""

    plan: Plan
    g: Group
    at: GroupOffsets
    first: int
    last: int

    def chunks(self, table: Any) -> Any:
        return table[self.g.first + self.first : self.g.first + self.last]

    @property
    def where(self) -> tuple[Any, Any]:
        return self.chunks(self.plan.offset), self.chunks(self.plan.stride)

    @property
    def layout(self) -> tuple[int, ...]:
        at = self.at
        return at.silent, at.indices, at.amplitudes, self.plan.bits, self.g.index_bits

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.g.h, self.g.w, chunk_dct.tables(self.g.h), chunk_dct.tables(self.g.w)

    @property
    def orthogonal(self) -> tuple[Any, ...]:
        h, w = self.g.h, self.g.w
        return tuple(np.float32(x) for x in (largest_integer(max(h, w)), *output_factors(h, w)))

    def values(self, buffer: Floats) -> Floats:
        g = self.g
        return buffer[g.start + self.first * g.size : g.start + self.last * g.size]

    def entries(self, buffer: Any) -> Any:
        g = self.g
        return buffer[g.entry + self.first * g.k : g.entry + self.last * g.k]


def _batches(plan: Plan, threads: int) -> list[ChunkBatch]:
    values = plan.size if threads == 1 else max(_LEAST, plan.size // (threads * _BATCHES))
    return [
        ChunkBatch(plan, g, at, first, min(g.count, first + chunks))
        for g, at in zip(plan.groups, sections(plan), strict=True)
        for chunks in [max(1, values // g.size)]
        for first in range(0, g.count, chunks)
    ]


@lru_cache(maxsize=8)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="distro")


def parallel_map(work: Callable[[T], R], things: Sequence[T]) -> Iterable[R]:
    """As `map`, in as many threads as torch may use."""
    threads = torch.get_num_threads()
    return map(work, things) if threads == 1 else _pool(threads).map(work, things)


def _in_batches(plan: Plan, work: Callable[[ChunkBatch], None]) -> None:
    """Call work(batch) for every batch; return when all ended."""
    list(parallel_map(work, _batches(plan, torch.get_num_threads())))


def compress(
    plan: Plan, grad: torch.Tensor, momentum: torch.Tensor, scale: float, decay: float
) -> tuple[Indices, Floats]:
    index, value = np.empty(plan.entries, np.int32), np.empty(plan.entries, np.float32)
    source, coefficients = grad.numpy(), momentum.numpy()

    def work(b: ChunkBatch) -> None:
        held = b.values(coefficients)
        kernels.compress(
            *b.shape, *b.where, b.g.k, source, np.float32(scale),
            held, held.view(np.int32), np.float32(decay), b.entries(index), b.entries(value),
        )  # fmt: skip

    _in_batches(plan, work)
    return index, value


def add_entries(
    plan: Plan, coefficients: torch.Tensor, index: Indices, value: Floats, scale: float
) -> None:
    into = coefficients.numpy()

    def work(b: ChunkBatch) -> None:
        said = b.entries(index), b.entries(value)
        kernels.add_entries(b.g.size, b.g.k, b.values(into), *said, np.float32(scale))

    _in_batches(plan, work)


def look_ahead(
    plan: Plan,
    weights: torch.Tensor,
    momentum: torch.Tensor,
    distance: float,
    treatment: int,
) -> None:
    coefficients, moved = momentum.numpy(), weights.numpy()
    one, no_payloads = np.float32(1), _as_rows([])

    def work(b: ChunkBatch) -> None:
        kernels.descend(
            *b.shape, *b.where, b.g.k, b.first, b.values(coefficients),
            no_payloads, _NOTHING, b.layout, one, treatment, _NOTHING, _NOTHING,
            (one, one, one, one), b.orthogonal, moved, one, np.float32(distance), LOW_BYTE,
        )  # fmt: skip

    _in_batches(plan, work)


def back_up(weights: torch.Tensor, backup: WeightBackup) -> None:
    _in_pieces(kernels.back_up, weights, backup)


def restore(weights: torch.Tensor, backup: WeightBackup) -> None:
    _in_pieces(kernels.restore, weights, backup)


def _in_pieces(work: Callable[..., None], weights: torch.Tensor, backup: WeightBackup) -> None:
    threads = torch.get_num_threads()
    parts = (weights.view(torch.int32), backup.high, backup.middle)
    pieces = zip(*(torch.tensor_split(x, threads) for x in parts), strict=True)
    list(parallel_map(lambda piece: work(*(x.numpy() for x in piece)), list(pieces)))


def apply(
    plan: Plan,
    weights: torch.Tensor,
    payloads: list[bytes],
    second: torch.Tensor | None,
    s: Stepping,
) -> None:
    raw, counts = _as_rows(payloads), np.array(s.weights, np.float32)
    rms = _inverse_rms(plan, raw, counts, s) if s.treatment == NORM else _NOTHING
    moments = _NOTHING if second is None else second.numpy()
    moved = weights.numpy()
    scalars = tuple(np.float32(x) for x in (s.beta2, s.fresh, s.unbias, s.eps))

    def work(b: ChunkBatch) -> None:
        kernels.descend(
            *b.shape, *b.where, b.g.k, b.first, _NOTHING,
            raw, counts, b.layout, np.float32(s.share), s.treatment, b.values(moments),
            b.chunks(rms), scalars, b.orthogonal, moved, np.float32(s.decay), np.float32(s.lr), 0,
        )  # fmt: skip

    _in_batches(plan, work)


def _as_rows(payloads: list[bytes]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), -1 if payloads else 0)


def _inverse_rms(plan: Plan, raw: npt.NDArray[np.uint8], counts: Floats, s: Stepping) -> Floats:
    squares = np.empty(len(plan.owner))

    def work(b: ChunkBatch) -> None:
        out = b.chunks(squares)
        kernels.square_sums(
            b.g.size, b.g.k, raw, counts, b.layout, np.float32(s.share), b.first, out
        )

    _in_batches(plan, work)
    return inverse_rms(plan, squares)
