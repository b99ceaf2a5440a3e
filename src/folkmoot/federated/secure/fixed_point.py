"""Real numbers as elements of the ring of 64-bit integers, where masks are perfectly random.

A value is multiplied by 2^fraction_bits, rounded to the nearest integer, and multiplied by the
sender's sample count. Sums wrap around; they are right as long as the true sum fits, which
`Precision.fits` tells before anybody encodes anything.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from folkmoot.federated.model_file.layout import Array


class Precision(NamedTuple):
    """`limit` bounds the size of an encodable value, `fraction_bits` its resolution."""

    limit: float
    fraction_bits: int

    def fits(self, total_samples: int) -> bool:
        """Whether a sum over so many samples can never overflow."""
        return (self.limit * 2.0**self.fraction_bits + 1) * total_samples < 2.0**63


def encode(values: Array, weight: int, precision: Precision) -> Array:
    """`weight` times `values`, in fixed point, as uint64."""
    reals = np.asarray(values, np.float64)
    if reals.size and not np.abs(reals).max() <= precision.limit:  # also catches NaN
        raise ValueError(
            f"a weight moved by {np.abs(reals).max()}, more than the {precision.limit} that "
            "secure aggregation can encode; raise limit in [secure]"
        )
    scaled = np.rint(reals * 2.0**precision.fraction_bits).astype(np.int64)
    return (scaled * weight).view(np.uint64)


def decode(total: Array, divisor: int, precision: Precision) -> Array:
    """The mean: a sum of encoded values divided by the sum of their weights, as float64."""
    signed: Array = total.view(np.int64)
    return signed / (divisor * 2.0**precision.fraction_bits)
