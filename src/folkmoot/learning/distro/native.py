"""DisTrO's heavy steps for the CPU: the functions of pure.py, compiled, with the same bits.

Work is cut into batches of chunks that fit the processor's cache and share nothing, so the number
of threads (torch's) changes nothing but the time. Kernels run without the interpreter lock; numba
compiles them at first use and keeps them in its cache.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from folkmoot.learning.distro import kernels, transform
from folkmoot.learning.distro.packing import check_body, pack
from folkmoot.learning.distro.plan import Group, Plan
from folkmoot.learning.distro.treatment import NORM, SIGN, Stepping, inverse_rms
from folkmoot.learning.distro.wire import Floats, Indices, Section, sections

__all__ = ["apply", "check_body", "compress", "look_ahead", "pack", "put_back"]

_BATCH = 1 << 17
"""Values worked on at once: 512 KiB."""
_NOTHING = np.zeros(0, np.float32)


class Batch(msgspec.Struct, frozen=True):
    """Chunks first … last of one group, and the parts of buffers that are theirs."""

    plan: Plan
    g: Group
    at: Section
    first: int
    last: int

    @property
    def where(self) -> tuple[Any, Any]:
        chunks = slice(self.g.first + self.first, self.g.first + self.last)
        return self.plan.offset[chunks], self.plan.stride[chunks]

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.g.h, self.g.w, transform.tables(self.g.h), transform.tables(self.g.w)

    def values(self, buffer: Floats) -> Floats:
        g = self.g
        return buffer[g.start + self.first * g.size : g.start + self.last * g.size]

    def entries(self, buffer: Any) -> Any:
        g = self.g
        return buffer[g.entry + self.first * g.k : g.entry + self.last * g.k]

    def empty(self) -> Floats:
        return np.empty((self.last - self.first) * self.g.size, np.float32)


def _batches(plan: Plan) -> list[Batch]:
    return [
        Batch(plan, g, at, first, min(g.count, first + chunks))
        for g, at in zip(plan.groups, sections(plan), strict=True)
        for chunks in [max(1, _BATCH // g.size)]
        for first in range(0, g.count, chunks)
    ]


@lru_cache(maxsize=8)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="distro")


def _each(plan: Plan, work: Callable[[Batch], None]) -> None:
    """Call work(batch) for every batch; return when all ended."""
    threads = torch.get_num_threads()
    if threads == 1:
        for batch in _batches(plan):
            work(batch)
    else:
        list(_pool(threads).map(work, _batches(plan)))


def compress(
    plan: Plan, grad: torch.Tensor, momentum: torch.Tensor, scale: float, decay: float
) -> tuple[Indices, Floats]:
    index, value = np.empty(plan.entries, np.int32), np.empty(plan.entries, np.float32)
    source, kept = grad.numpy(), momentum.numpy()

    def work(b: Batch) -> None:
        fresh, held = b.empty(), b.values(kept)
        transform.forward(*b.shape, *b.where, source, fresh)
        kernels.fold(
            b.g.size, b.g.k, fresh, np.float32(scale), held, held.view(np.int32),
            np.float32(decay), b.entries(index), b.entries(value),
        )  # fmt: skip

    _each(plan, work)
    return index, value


def put_back(
    plan: Plan, coefficients: torch.Tensor, index: Indices, value: Floats, scale: float
) -> None:
    into = coefficients.numpy()
    for g in plan.groups:
        where = slice(g.entry, g.entry + g.count * g.k)
        part = into[g.start : g.start + g.count * g.size]
        kernels.put_back(g.size, g.k, part, index[where], value[where], np.float32(scale))


def look_ahead(
    plan: Plan,
    weights: torch.Tensor,
    momentum: torch.Tensor,
    in_flight: list[tuple[Indices, Floats]],
    distance: float,
) -> None:
    kept, moved = momentum.numpy(), weights.numpy()
    one, far = np.float32(1), np.float32(distance)
    unused = (one, one, one, one)

    def work(b: Batch) -> None:
        x = b.values(kept).copy()
        for index, value in in_flight:
            kernels.put_back(b.g.size, b.g.k, x, b.entries(index), b.entries(value), one)
        transform.inverse(*b.shape, x)
        kernels.treat(b.g.size, SIGN, x, _NOTHING, _NOTHING, unused)
        kernels.step(b.g.h, b.g.w, *b.where, moved, x, one, far)

    _each(plan, work)


def apply(
    plan: Plan,
    weights: torch.Tensor,
    payloads: list[bytes],
    second: torch.Tensor | None,
    s: Stepping,
) -> None:
    raw = np.frombuffer(b"".join(p + b"\0\0" for p in payloads), np.uint8)
    raw = raw.reshape(len(payloads), -1)
    rms = _inverse_rms(plan, raw, s) if s.treatment == NORM else _NOTHING
    moments = _NOTHING if second is None else second.numpy()
    moved = weights.numpy()
    scalars = tuple(np.float32(x) for x in (s.beta2, s.fresh, s.unbias, s.eps))

    def work(b: Batch) -> None:
        x = _mean(b, raw, s)
        transform.inverse(*b.shape, x)
        scale = rms[b.g.first + b.first : b.g.first + b.last]
        kernels.treat(b.g.size, s.treatment, x, b.values(moments), scale, scalars)
        kernels.step(b.g.h, b.g.w, *b.where, moved, x, np.float32(s.keep), np.float32(s.lr))

    _each(plan, work)


def _mean(b: Batch, raw: npt.NDArray[np.uint8], s: Stepping) -> Floats:
    total, g, at = b.empty(), b.g, b.at
    kernels.mean(
        b.first, b.last - b.first, g.size, g.k, raw, at.silent, at.indices, at.amplitudes,
        b.plan.bits, g.index_bits, np.float32(s.share), total,
    )  # fmt: skip
    return total


def _inverse_rms(plan: Plan, raw: npt.NDArray[np.uint8], s: Stepping) -> Floats:
    squares = np.empty(len(plan.owner))

    def work(b: Batch) -> None:
        out = squares[b.g.first + b.first : b.g.first + b.last]
        kernels.squares(b.g.size, _mean(b, raw, s), out)

    _each(plan, work)
    return inverse_rms(plan, squares)
