"""The compiled loops over chunks behind native.py, each over some consecutive chunks of one group.

Nothing is fused or reordered, and no sum spans two chunks, so results do not depend on how a caller
cuts a group. Arrays of coefficients, entries and values are the part that belongs to those chunks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from folkmoot.learning.distro.compiled import compiled
from folkmoot.learning.distro.largest import largest
from folkmoot.learning.distro.packing import get
from folkmoot.learning.distro.treatment import ADAM, SIGN


@compiled
def fold(
    size: int, k: int, fresh: Any, scale: Any, held: Any, held_bits: Any, decay: Any,
    index: Any, value: Any,
) -> None:  # fmt: skip
    """held ← decay · held + scale · fresh; then take the k largest of each chunk out of held.

    `held_bits` is `held` seen as int32."""
    room = np.empty((3, size), np.int32)
    for i in range(held.size):
        held[i] = held[i] * decay + fresh[i] * scale
    for chunk in range(held.size // size):
        first, entry = chunk * size, chunk * k
        chosen = index[entry : entry + k]
        largest(held_bits[first : first + size], k, room, chosen)
        for j in range(k):
            value[entry + j] = held[first + chosen[j]]
            held[first + chosen[j]] = np.float32(0)


@compiled
def put_back(size: int, k: int, into: Any, index: Any, value: Any, scale: Any) -> None:
    for e in range(index.size):
        into[e // k * size + index[e]] += value[e] * scale


@compiled
def mean(
    first: int, count: int, size: int, k: int, payloads: Any, silent: int, indices: int,
    amplitudes: int, bits: int, index_bits: int, share: Any, total: Any,
) -> None:  # fmt: skip
    """The mean over all payloads of the group's chunks from `first` on, summed in their order."""
    word = np.empty(1, np.uint32)
    total[:] = np.float32(0)
    for p in range(payloads.shape[0]):
        raw = payloads[p]
        for chunk in range(count):
            if get(raw, silent * 8 + first + chunk, 1):
                continue
            for j in range(k):
                e = (first + chunk) * k + j
                place = get(raw, indices * 8 + e * index_bits, index_bits) if index_bits else j
                code = get(raw, amplitudes * 8 + e * bits, bits)
                if bits == 1:
                    total[chunk * size + place] += np.float32(1 - 2 * code)
                else:
                    word[0] = code << 16
                    total[chunk * size + place] += word.view(np.float32)[0]
    for i in range(total.size):
        total[i] = total[i] * share


@compiled
def squares(size: int, chunks: Any, out: Any) -> None:
    """Per chunk, the sum of squares, from the first to the last."""
    for chunk in range(out.size):
        added = 0.0
        for i in range(chunk * size, (chunk + 1) * size):
            if chunks[i] != 0:
                added += np.float64(chunks[i]) * np.float64(chunks[i])
        out[chunk] = added


@compiled
def treat(size: int, treatment: int, x: Any, second: Any, inverse_rms: Any, scalars: Any) -> None:
    """Decoded values to directions, in place, as treatment.py says."""
    beta2, fresh, unbias, eps = scalars
    if treatment == SIGN:
        for i in range(x.size):
            x[i] = np.float32(x[i] > 0) - np.float32(x[i] < 0)
    elif treatment == ADAM:
        for i in range(x.size):
            second[i] = second[i] * beta2 + (x[i] * x[i]) * fresh
            x[i] = x[i] / (np.sqrt(second[i] * unbias) + eps)
    else:
        for chunk in range(x.size // size):
            for i in range(chunk * size, (chunk + 1) * size):
                x[i] = x[i] * inverse_rms[chunk]


@compiled
def step(
    h: int, w: int, offset: Any, stride: Any, weights: Any, u: Any, keep: Any, lr: Any
) -> None:
    """weights ← keep · weights − lr · u."""
    for chunk in range(offset.size):
        for i in range(h):
            at, row = offset[chunk] + i * stride[chunk], (chunk * h + i) * w
            for j in range(w):
                weights[at + j] = weights[at + j] * keep - u[row + j] * lr
