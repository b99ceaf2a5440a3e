"""Differential privacy of masked sums, with no coordinator to trust: members add the noise.

Each member cuts its step to `clip_norm`, writes it in fixed point, and adds a rounded Gaussian
before it masks the whole: so the sum alone is noisy, and nobody sees it without. Of the members
that stay to the end at least `honest` add theirs, when fewer than a third collude: each adds a
`honest`-th of the variance that the sum needs, and what the others add comes on top.

Kairouz, Liu and Steinke 2021 (theorem 1): a sum of k discrete Gaussians of deviation σ protects
like one continuous Gaussian of deviation σ√k, up to terms of e^(−π²σ²). With σ of `LEAST_DEVIATION`
steps of the grid and more those are zero in any arithmetic, and a rounded Gaussian is a discrete
one to one part in 2²⁰. So the accountant is the continuous one's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from blake3 import blake3

from folkmoot.federated.aggregate.noise import Noise
from folkmoot.federated.aggregate.spans import ArraySpan
from folkmoot.federated.keystream import derive_key
from folkmoot.federated.model_file.layout import Array, ModelSink, ModelSource
from folkmoot.federated.secure.fixed_point import Precision
from folkmoot.federated.secure.masks import Mask, Masker

#: In steps of the fixed point's grid, of one member's noise.
LEAST_DEVIATION = 1024.0


class PrivateSum(NamedTuple):
    """What a private sum asks of its members."""

    clip_norm: float
    noise_multiplier: float
    precision: Precision

    @property
    def grid(self) -> float:
        """Steps of the grid in one."""
        return 2.0**self.precision.fraction_bits

    def deviation(self, honest: int) -> float:
        """Of each member's noise, in steps of the grid, when so many are sure to add theirs."""
        return self.noise_multiplier * self.clip_norm * self.grid / math.sqrt(honest)

    def wrong(self, honest: int, members: int) -> str:
        """Why no such sum can be made, or nothing."""
        if self.clip_norm > self.precision.limit:
            return f"clip_norm {self.clip_norm} is above [secure] limit {self.precision.limit}"
        if self.deviation(honest) < LEAST_DEVIATION:
            return (
                f"noise of {self.deviation(honest):.0f} steps of the grid is too coarse; raise "
                "fraction_bits, clip_norm or noise_multiplier"
            )
        # Forty deviations: more than any generator of 64 bits gives.
        most = self.clip_norm * self.grid + 40 * self.deviation(honest)
        if most * members >= 2.0**63:
            return "clip_norm, noise_multiplier and fraction_bits together do not fit 64 bits"
        return ""


def write_noisy(
    model: ModelSource,
    reference: ModelSource,
    rules: PrivateSum,
    honest: int,
    secret: bytes,
    masks: Sequence[Mask],
    out: ModelSink,
) -> None:
    """A member's upload: its step, cut, in fixed point, with its share of the noise, masked.

    The noise follows from `secret` and the step: an update that is masked again is the same, and
    any other has noise of its own. Arrays of integers stay as they are.
    """
    factor, digest = _factor(model, reference, rules)
    noise = Noise(derive_key(secret, "share of the noise", digest, str(honest), repr(rules)))
    masker, deviation = Masker(masks, model.layout), rules.deviation(honest)
    for span, step in _steps(model, reference):
        if step is None:
            words = np.zeros(span.size, np.int64)
        else:
            words = np.rint(step * (factor * rules.grid)).astype(np.int64)
            words += np.rint(noise(span) * deviation).astype(np.int64)
        unsigned = words.view(np.uint64)
        masker.add(span.name, span.start, unsigned)
        out.write(span.name, span.start, unsigned.view(np.int64))


def _factor(model: ModelSource, reference: ModelSource, rules: PrivateSum) -> tuple[float, str]:
    """What the step is multiplied by, so that it is within the norm when it is rounded too."""
    squares, count, digest = [], 0, blake3()
    for span, step in _steps(model, reference):
        if step is not None:
            squares.append(float(np.dot(step, step)))
            count += span.size
            digest.update(step.view(np.uint8).data)
    norm = math.sqrt(math.fsum(squares))
    if not math.isfinite(norm):
        raise ValueError("the update moved a weight to infinity, or to what is not a number")
    room = rules.clip_norm - math.sqrt(count) / 2 / rules.grid
    if room < rules.clip_norm / 2:
        raise ValueError(
            f"clip_norm {rules.clip_norm} is too small for {count} weights in steps of "
            f"1/{rules.grid:.0f}; raise clip_norm or fraction_bits"
        )
    return (min(1.0, room / norm) if norm else 1.0), digest.hexdigest()


def _steps(model: ModelSource, reference: ModelSource) -> Iterator[tuple[ArraySpan, Array | None]]:
    """Every span once, with how far it moved; None for what is not real numbers."""
    for name, start, values in model.blocks():
        span = ArraySpan(name, model.layout[name], start, values.size)
        if values.dtype.kind != "f":
            yield span, None
            continue
        origin = np.empty(values.size, values.dtype)
        reference.read(name, start, origin)
        yield span, values.astype(np.float64) - origin.astype(np.float64)
