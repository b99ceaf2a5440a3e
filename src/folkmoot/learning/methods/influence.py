"""How much each payload of a round counts: by its samples, within bounds, however loud it is.

Neither large values nor a large share may let one client decide for all. So

- a payload weighs as much as its share of the samples, from half to twice the median share. Weights
  are small whole numbers: sums of so many signs stay exact in float32, in any order;
- a payload of a method that sends whole gradients, or ways gone, is scaled down to twice the median
  norm of its round. Honest ones hardly ever are longer. DisTrO needs no such comparison: there
  every chunk of every payload has the same energy (distro/reference.py);
- where DisTrO is told so (`weigh_alignment`), a payload that is less aligned with the others than
  usual, as one of who trained less is, weighs less: the eighth power of how much of the usual
  alignment it has, in sixteenths. That is a rule of one round alone, so who joined a moment ago
  computes what all others do. Its bits are the same everywhere: sketches are whole numbers whose
  products and sums float64 holds exactly, in any order, and what follows are single operations
  that every machine rounds alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from folkmoot.core.coordinator.client.alignment import (
    FAINTEST,
    above_three_fifths,
    relative_to_usual,
)
from folkmoot.core.coordinator.client.screening import COMPARED
from folkmoot.learning.methods.clipping import norm

EVEN = 16
LEAST, MOST = EVEN // 2, EVEN * 2
"""A payload of the median share weighs `EVEN`; none weighs less or more than these."""
LONGEST = 2.0
"""No payload counts as longer than so many times the median."""
ALIGNED = 16
"""What a payload weighs, on top, that is aligned as usual or better."""


def sample_weights(samples: Sequence[int], payloads: int) -> tuple[int, ...]:
    """The weight of each payload, in lowest terms; all alike where nothing is known of samples."""
    if not samples:
        return (1,) * payloads
    if len(samples) != payloads:
        raise ValueError(f"{len(samples)} shares were named for {payloads} payloads")
    median = sorted(samples)[(len(samples) - 1) // 2]
    weights = [min(max((2 * EVEN * s + median) // (2 * median), LEAST), MOST) for s in samples]
    common = math.gcd(*weights)
    return tuple(weight // common for weight in weights)


def alignment_weights(sketches: Sequence[bytes]) -> tuple[int, ...]:
    """From 0 to `ALIGNED` for each payload of a round; all alike where fewer than three are to be
    compared, or they hardly agree. At least one is not 0."""
    count = len(sketches)
    if count < 3:
        return (ALIGNED,) * count
    rows = np.stack([np.frombuffer(s, "<i2", offset=4) for s in sketches]).astype(np.float64)
    lengths = np.sqrt((rows * rows).sum(axis=1))
    lengths[lengths == 0.0] = 1.0
    compared = min(count, COMPARED)
    others = np.arange(compared) * (count - 1) // (compared - 1)
    cosines = (rows @ rows[others].T) / (lengths[:, None] * lengths[others])
    aligned = np.array([above_three_fifths(row[others != i]) for i, row in enumerate(cosines)])
    if float(np.median(aligned)) < FAINTEST:
        return (ALIGNED,) * count
    power = np.clip(relative_to_usual(aligned), 0.0, 1.0)
    for _ in range(3):
        power = power * power
    return tuple(int(weight) for weight in np.rint(ALIGNED * power))


def bounded_mean(
    decoded: Callable[[bytes], torch.Tensor], payloads: Sequence[bytes], samples: Sequence[int]
) -> torch.Tensor:
    """The mean of what payloads say, each bounded and weighed; summed in the order given.

    `decoded` makes a tensor of its own of a payload; each is made twice, so that not all are held
    at once."""
    weights = sample_weights(samples, len(payloads))
    lengths = [norm(decoded(payload)) for payload in payloads]
    limit = LONGEST * sorted(lengths)[(len(lengths) - 1) // 2]
    total: torch.Tensor | None = None
    for payload, weight, length in zip(payloads, weights, lengths, strict=True):
        scale = weight * limit / length if length > limit else float(weight)
        values = decoded(payload)
        if scale != 1.0:
            values.mul_(scale)
        total = values if total is None else total.add_(values)
    assert total is not None
    return total.div_(sum(weights))


def contrast(
    decoded: Callable[[bytes], torch.Tensor], payload: bytes, others: Sequence[bytes]
) -> torch.Tensor:
    """What a payload says less the mean of what others say, all with the same length."""
    along = _unit(decoded(payload))
    for other in others:
        along.sub_(_unit(decoded(other)), alpha=1 / len(others))
    return along


def _unit(values: torch.Tensor) -> torch.Tensor:
    """What is not a number, or nothing, goes nowhere."""
    length = norm(values)
    return values / length if 0.0 < length < math.inf else torch.zeros_like(values)
