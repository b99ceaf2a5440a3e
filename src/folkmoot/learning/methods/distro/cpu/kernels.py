"""The compiled loops over chunks behind backend.py, each over some consecutive chunks of one group.

Nothing is fused or reordered, and no sum spans two chunks, so results do not depend on how a caller
cuts a group. Arrays of coefficients, entries and values are the part that belongs to those chunks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from folkmoot.learning.methods.distro.backup import LOW_BYTE
from folkmoot.learning.methods.distro.cpu.bitmask import float_from_bits
from folkmoot.learning.methods.distro.cpu.chunk_dct import (
    copy,
    forward_chunk,
    inverse_chunk,
    row,
)
from folkmoot.learning.methods.distro.cpu.jit import compiled
from folkmoot.learning.methods.distro.cpu.orthogonal import orthogonalise_chunk
from folkmoot.learning.methods.distro.cpu.packing import is_inside, read_bits, read_bits_inside
from folkmoot.learning.methods.distro.cpu.simd import prefetch, step_row
from folkmoot.learning.methods.distro.cpu.topk import topk
from folkmoot.learning.methods.distro.cpu.unpack12 import can_unpack12, unpack_entries8
from folkmoot.learning.methods.distro.treatment import ADAM, NORM, ORTHOGONAL, SIGN


@compiled
def compress(
    h: int, w: int, th: Any, tw: Any, offset: Any, stride: Any, k: int, grad: Any, scale: Any,
    momentum: Any, momentum_bits: Any, decay: Any, index: Any, value: Any,
) -> None:  # fmt: skip
    """momentum ← decay · momentum + scale · DCT(grad); take the k largest of each chunk out of it.

    `momentum_bits` is `momentum` seen as int32."""
    size = h * w
    a, b = np.empty(size, np.float32), np.empty(size, np.float32)
    scratch = np.empty((3, size), np.int32)
    for chunk in range(offset.size):
        at, ahead = chunk, min(chunk + 1, offset.size - 1)
        held = row(momentum, chunk, size)
        forward_chunk(
            h, w, th, tw, offset[at], stride[at], grad, offset[ahead], stride[ahead],
            momentum, at * size, ahead * size, decay, scale, a, b,
        )  # fmt: skip
        chosen = row(index, chunk, k)
        topk(row(momentum_bits, chunk, size), k, scratch, chosen)
        for j in range(k):
            value[chunk * k + j] = held[chosen[j]]
            held[chosen[j]] = np.float32(0)


@compiled
def add_entries(size: int, k: int, into: Any, index: Any, value: Any, scale: Any) -> None:
    for chunk in range(index.size // k):
        for e in range(chunk * k, (chunk + 1) * k):
            into[chunk * size + index[e]] += value[e] * scale


@compiled
def _add_signs(
    raw: Any, indices: int, signs: int, index_bits: int, k: int, chunk: int, weight: Any, total: Any
) -> None:
    """`weight` or minus that for each entry; signs are read sixteen at a time, indices two."""
    indices += chunk * k * index_bits
    inside = is_inside(raw, indices + k * index_bits)
    for first in range(0, k, 16):
        code = read_bits(raw, signs + chunk * k + first, 16)
        last = min(first + 16, k)
        for j in range(first, last - 1, 2):
            bit = indices + j * index_bits
            both = 2 * index_bits
            two = read_bits_inside(raw, bit, both) if inside else read_bits(raw, bit, both)
            total[two & ((1 << index_bits) - 1)] += np.float32(1 - 2 * (code & 1)) * weight
            total[two >> index_bits] += np.float32(1 - (code & 2)) * weight
            code >>= 2
        if last % 2:
            place = read_bits(raw, indices + (last - 1) * index_bits, index_bits)
            total[place] += np.float32(1 - 2 * (code & 1)) * weight


@compiled
def _add_amplitudes(
    raw: Any, indices: int, amplitudes: int, index_bits: int, k: int, chunk: int, weight: Any,
    index: Any, value: Any, total: Any,
) -> None:  # fmt: skip
    """One chunk of a payload with 16-bit amplitudes, with the energy of k times `weight`².

    `index` and `value` have room for k entries."""
    squares = 0.0
    for j in range(k):
        e = chunk * k + j
        index[j] = read_bits(raw, indices * 8 + e * index_bits, index_bits) if index_bits else j
        code = read_bits(raw, amplitudes * 8 + e * 16, 16)
        value[j] = float_from_bits(np.int32(code << 16))
        squares += np.float64(value[j]) * np.float64(value[j])
    if squares == 0:
        return
    factor = np.sqrt(k / squares) * np.float64(weight)
    for j in range(k):
        total[index[j]] += np.float32(np.float64(value[j]) * factor)


@compiled
def _add_payloads(
    payloads: Any, counts: Any, layout: Any, k: int, chunk: int, index: Any, value: Any, total: Any
) -> None:
    """Add what every payload says about one chunk, in the order of the payloads.

    Entries are first read into `index` and `value`, which have room for all, where that can be done
    eight at a time: whole numbers sum to the same in any order."""
    silent, indices, amplitudes, bits, index_bits = layout
    known = 0
    for p in range(payloads.shape[0]):
        raw, weight = payloads[p], counts[p]
        prefetch(raw, indices + ((chunk + 4) * k * index_bits >> 3))  # too many rows to be foreseen
        if read_bits(raw, silent * 8 + chunk, 1):
            continue
        at = indices + (chunk * k * index_bits >> 3)
        if bits == 1 and can_unpack12(raw, index_bits, k, at):
            signs = amplitudes + (chunk * k >> 3)
            for j in range(0, k, 8):
                unpack_entries8(raw, at + (j * 3 >> 1), signs + (j >> 3), index, value, known + j)
            if weight != 1:
                for e in range(known, known + k):
                    value[e] *= weight
            known += k
            continue
        if bits == 1 and 0 < index_bits <= 12:
            _add_signs(raw, indices * 8, amplitudes * 8, index_bits, k, chunk, weight, total)
            continue
        if bits == 16:
            _add_amplitudes(
                raw, indices, amplitudes, index_bits, k, chunk, weight, index, value, total
            )
            continue
        for j in range(k):
            e = chunk * k + j
            place = read_bits(raw, indices * 8 + e * index_bits, index_bits) if index_bits else j
            code = read_bits(raw, amplitudes * 8 + e, 1)
            total[place] += np.float32(1 - 2 * code) * weight
    for e in range(known):
        total[index[e]] += value[e]


@compiled
def square_sums(
    size: int, k: int, payloads: Any, counts: Any, layout: Any, share: Any, first: int, out: Any
) -> None:
    """Per chunk, the sum of squares of the payloads' mean, from the first to the last."""
    total = np.empty(size, np.float32)
    said = payloads.shape[0] * k
    index, value = np.empty(said, np.uint16), np.empty(said, np.float32)
    for chunk in range(out.size):
        total[:] = np.float32(0)
        _add_payloads(payloads, counts, layout, k, first + chunk, index, value, total)
        added = 0.0
        for i in range(size):
            mean = total[i] * share
            if mean != 0:
                added += np.float64(mean) * np.float64(mean)
        out[chunk] = added


@compiled
def _treat(treatment: int, x: Any, second: Any, inverse_rms: Any, scalars: Any) -> None:
    """Decoded values to directions, in place, as treatment.py says."""
    beta2, fresh, unbias, eps = scalars
    if treatment == SIGN:
        for i in range(x.size):
            x[i] = np.float32(x[i] > 0) - np.float32(x[i] < 0)
    elif treatment == ADAM:
        for i in range(x.size):
            second[i] = second[i] * beta2 + (x[i] * x[i]) * fresh
            x[i] = x[i] / (np.sqrt(second[i] * unbias) + eps)
    elif treatment == NORM:
        for i in range(x.size):
            x[i] = x[i] * inverse_rms


@compiled
def back_up(bits: Any, high: Any, middle: Any) -> None:
    for i in range(bits.size):
        high[i] = bits[i] >> 16
        middle[i] = bits[i] >> 8


@compiled
def restore(bits: Any, high: Any, middle: Any) -> None:
    for i in range(bits.size):
        low = bits[i] & np.int32(LOW_BYTE)
        bits[i] = (np.int32(high[i]) << 16) | (np.int32(middle[i]) << 8) | low


@compiled
def _step(weights: Any, at: int, u: Any, w: int, decay: Any, lr: Any, untouched: int) -> None:
    """weights ← decay · weights − lr · u, but for the bits of each that stay untouched."""
    if w == 64:
        step_row(weights, at, u, decay, -lr, untouched)
        return
    here = weights[at : at + w]
    for i in range(w):
        u[i] = here[i] * decay - u[i] * lr
    bits, moved = here.view(np.int32), u.view(np.int32)
    for i in range(w):
        bits[i] = (moved[i] & np.int32(~untouched)) | (bits[i] & np.int32(untouched))


@compiled
def descend(
    h: int, w: int, th: Any, tw: Any, offset: Any, stride: Any, k: int, first: int,
    momentum: Any, payloads: Any, counts: Any, layout: Any, share: Any,
    treatment: int, second: Any, inverse_rms: Any, scalars: Any, orthogonal_scalars: Any,
    weights: Any, decay: Any, lr: Any, untouched: int,
) -> None:  # fmt: skip
    """Invert momentum and payloads, each times what it counts, together; treat, and step.

    What plays no part is empty: no momentum, no payloads, no second moment."""
    size = h * w
    a, b = np.empty(size, np.float32), np.empty(size, np.float32)
    said = payloads.shape[0] * k
    index, value = np.empty(said, np.uint16), np.empty(said, np.float32)
    side = min(h, w) if treatment == ORTHOGONAL else 0
    scratch, masks = np.empty(2 * side * side, np.float32), np.empty((3, 64), np.int64)
    for chunk in range(offset.size):
        ahead = min(chunk + 1, offset.size - 1)
        if momentum.size:
            copy(row(momentum, chunk, size), a)
        else:
            a[:] = np.float32(0)
        _add_payloads(payloads, counts, layout, k, first + chunk, index, value, a)
        if treatment == ORTHOGONAL:
            a, b = orthogonalise_chunk(a, b, w, h, share, orthogonal_scalars, scratch, masks)
        else:
            for i in range(size):
                a[i] = a[i] * share
        x, _ = inverse_chunk(h, w, th, tw, weights, offset[ahead], stride[ahead], a, b)
        rms = inverse_rms[chunk] if inverse_rms.size else np.float32(0)
        _treat(treatment, x, row(second, chunk, size), rms, scalars)
        for i in range(h):
            at = offset[chunk] + i * stride[chunk]
            _step(weights, at, row(x, i, w), w, decay, lr, untouched)
