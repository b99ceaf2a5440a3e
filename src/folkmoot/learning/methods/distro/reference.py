"""DisTrO's heavy steps in plain torch and numpy: readable, for any device, and what every other
backend's bits are compared with. backend.py says what each function does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch

from folkmoot.learning.methods import sketch as sketching
from folkmoot.learning.methods.bfloat16 import Floats
from folkmoot.learning.methods.distro import wire
from folkmoot.learning.methods.distro.backup import LOW_BYTE, WeightBackup
from folkmoot.learning.methods.distro.dct import dct_chunks, idct_by_products, idct_chunks
from folkmoot.learning.methods.distro.orthogonal import orthogonalise
from folkmoot.learning.methods.distro.plan import Group, Plan, Slot, as_matrices
from folkmoot.learning.methods.distro.treatment import (
    NORM,
    ORTHOGONAL,
    Stepping,
    inverse_rms,
    treat,
)
from folkmoot.learning.methods.distro.wire import Indices
from folkmoot.learning.methods.distro.wire import check_body as check_body
from folkmoot.learning.methods.distro.wire import pack as pack

T = TypeVar("T")
R = TypeVar("R")


def _blocks(flat: torch.Tensor, slot: Slot, group: Group) -> torch.Tensor:
    """A parameter's values as a view [matrices · rows of chunks, chunks in a row, h, w]."""
    stack, rows, columns = as_matrices(slot.shape)
    values = flat[slot.offset : slot.offset + stack * rows * columns]
    shape = (stack * rows // group.h, group.h, columns // group.w, group.w)
    return values.view(shape).transpose(1, 2)


def gather(plan: Plan, flat: torch.Tensor, number: int) -> torch.Tensor:
    """The chunks of group `number` as [chunks, h, w]."""
    g = plan.groups[number]
    members = [s for s in plan.slots if s.group == number]
    members.sort(key=lambda s: s.first)
    return torch.cat([_blocks(flat, s, g).reshape(-1, g.h, g.w) for s in members])


def scatter(plan: Plan, flat: torch.Tensor, number: int, chunks: torch.Tensor) -> None:
    """The reverse of `gather`."""
    g = plan.groups[number]
    for slot in plan.slots:
        if slot.group == number:
            first = slot.first - g.first
            blocks = _blocks(flat, slot, g)
            blocks.copy_(chunks[first : first + slot.chunks].view(blocks.shape))


def _coefficients(buffer: torch.Tensor, g: Group) -> torch.Tensor:
    return buffer[g.start : g.start + g.count * g.size].view(g.count, g.size)


def topk(x: torch.Tensor, k: int) -> torch.Tensor:
    """Per row, the indices of the k largest magnitudes, ascending; of equals, the first ones."""
    order = torch.sort(x.abs(), dim=1, descending=True, stable=True).indices[:, :k]
    return torch.sort(order, dim=1).values


def compress(
    plan: Plan, grad: torch.Tensor, momentum: torch.Tensor, scale: float, decay: float
) -> tuple[Indices, Floats]:
    index, value = np.empty(plan.entries, np.int32), np.empty(plan.entries, np.float32)
    for number, g in enumerate(plan.groups):
        held = _coefficients(momentum, g)
        fresh = dct_chunks(gather(plan, grad, number)).reshape(g.count, g.size)
        held.mul_(decay).add_(fresh * scale)
        chosen = topk(held, g.k)
        where = slice(g.entry, g.entry + g.count * g.k)
        index[where] = chosen.to(torch.int32).cpu().numpy().reshape(-1)
        value[where] = held.gather(1, chosen).cpu().numpy().reshape(-1)
        held.scatter_(1, chosen, 0.0)
    return index, value


def add_entries(
    plan: Plan, coefficients: torch.Tensor, index: Indices, value: Floats, scale: float
) -> None:
    for g in plan.groups:
        where = slice(g.entry, g.entry + g.count * g.k)
        chosen = torch.from_numpy(index[where].astype(np.int64)).view(g.count, g.k)
        said = torch.from_numpy(value[where]).view(g.count, g.k) * scale
        device = coefficients.device
        _coefficients(coefficients, g).scatter_add_(1, chosen.to(device), said.to(device))


def look_ahead(
    plan: Plan,
    weights: torch.Tensor,
    momentum: torch.Tensor,
    distance: float,
    treatment: int,
) -> None:
    for number, g in enumerate(plan.groups):
        c = _coefficients(momentum, g).view(g.count, g.w, g.h)
        u = idct_chunks(orthogonalise(c)) if treatment == ORTHOGONAL else torch.sign(idct_chunks(c))
        here = gather(plan, weights, number)
        there = (here - u * distance).view(torch.int32) & ~LOW_BYTE
        there |= here.view(torch.int32) & LOW_BYTE
        scatter(plan, weights, number, there.view(torch.float32))


def back_up(weights: torch.Tensor, backup: WeightBackup) -> None:
    bits = weights.view(torch.int32)
    backup.high.copy_(bits >> 16)
    backup.middle.copy_((bits >> 8) & 0xFF)


def restore(weights: torch.Tensor, backup: WeightBackup) -> None:
    bits = weights.view(torch.int32)
    bits &= LOW_BYTE
    bits |= backup.high.int() << 16
    bits |= backup.middle.int() << 8


def parallel_map(work: Callable[[T], R], things: Sequence[T]) -> Iterable[R]:
    """torch has its own threads."""
    return map(work, things)


def apply(
    plan: Plan,
    weights: torch.Tensor,
    payloads: list[bytes],
    second: torch.Tensor | None,
    s: Stepping,
) -> None:
    total = torch.zeros(plan.size, dtype=torch.float32, device=weights.device)
    for payload, weight in zip(payloads, s.weights, strict=True):
        index, value = wire.unpack(plan, payload)
        add_entries(plan, total, index, _same_energy(plan, value, weight), 1.0)
    total.mul_(s.share)
    rms = _inverse_rms(plan, total) if s.treatment == NORM else None
    for number, g in enumerate(plan.groups):
        c = _coefficients(total, g).view(g.count, g.w, g.h)
        x = idct_chunks(orthogonalise(c) if s.treatment == ORTHOGONAL else c)
        held = None if second is None else _coefficients(second, g).view(g.count, g.h, g.w)
        scale = None if rms is None else rms[g.first : g.first + g.count].view(-1, 1, 1)
        u = x if s.treatment == ORTHOGONAL else treat(s, x, held, scale)
        scatter(plan, weights, number, gather(plan, weights, number) * s.decay - u * s.lr)


def contrast(
    plan: Plan, weights: torch.Tensor, payload: bytes, others: Sequence[bytes]
) -> torch.Tensor:
    """What a payload stands for less the mean of others, flat as the weights lie, not treated.

    All have the same energy, and the transform is linear: it is inverted once. What is made of it
    is a comparison of two losses, for which the last bit does not matter."""
    coefficients = torch.zeros(plan.size, dtype=torch.float32, device=weights.device)
    scales = [1.0, *[-1.0 / len(others)] * len(others)]
    for one, scale in zip((payload, *others), scales, strict=True):
        index, value = wire.unpack(plan, one)
        add_entries(plan, coefficients, index, _same_energy(plan, value, 1), scale)
    flat = torch.zeros_like(weights)
    for number, g in enumerate(plan.groups):
        c = _coefficients(coefficients, g).view(g.count, g.w, g.h)
        scatter(plan, flat, number, idct_by_products(c))
    return flat


def sketch(plan: Plan, payload: bytes) -> bytes:
    index, value = wire.unpack(plan, payload)
    scaled = _same_energy(plan, value, 1)
    sums, squares = sketching.empty_sums(), 0.0
    for g in plan.groups:
        where = slice(g.entry, g.entry + g.count * g.k)
        first = g.start + np.arange(g.count).reshape(-1, 1) * g.size
        place = (first + index[where].reshape(g.count, g.k)).reshape(-1)
        sketching.add(sums, place, scaled[where])
        by_chunk = value[where].reshape(g.count, g.k).astype(np.float64) ** 2
        squares += float(np.cumsum(np.cumsum(by_chunk, axis=1)[:, -1])[-1])
    return sketching.encode(sums, squares)


def _same_energy(plan: Plan, value: Floats, weight: int) -> Floats:
    """Every chunk of a payload scaled so that its entries have the mean square of `weight`².

    Amplitudes of one bit are so from the start. Else one loud payload would drown all others."""
    if plan.bits == 1:
        return value * np.float32(weight)
    scaled = np.empty_like(value)
    for g in plan.groups:
        where = slice(g.entry, g.entry + g.count * g.k)
        said = value[where].reshape(g.count, g.k).astype(np.float64)
        squares = np.cumsum(said * said, axis=1)[:, -1]
        factor = np.sqrt(g.k / np.where(squares == 0, 1.0, squares)) * weight
        scaled[where] = (said * factor.reshape(-1, 1)).astype(np.float32).reshape(-1)
    return scaled


def _inverse_rms(plan: Plan, coefficients: torch.Tensor) -> torch.Tensor:
    squares = np.zeros(len(plan.owner))
    for g in plan.groups:
        c = _coefficients(coefficients, g).cpu().numpy().astype(np.float64)
        squares[g.first : g.first + g.count] = np.cumsum(c * c, axis=1)[:, -1]
    return torch.from_numpy(inverse_rms(plan, squares)).to(coefficients.device)
