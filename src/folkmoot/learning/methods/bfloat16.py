"""float32 values to bfloat16 and back, in numpy, bounded as every payload's amplitudes are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

AMPLITUDE_LIMIT = 2.0**40
"""Far beyond any gradient, and small enough that no sum or square of them overflows."""


def to_bfloat16(values: Floats) -> npt.NDArray[np.uint16]:
    """Round to nearest, ties to even; beyond the limit, to the limit."""
    bounded = np.clip(values, -AMPLITUDE_LIMIT, AMPLITUDE_LIMIT).view(np.uint32)
    return ((bounded + 0x7FFF + ((bounded >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(values: npt.NDArray[np.uint16]) -> Floats:
    return (values.astype(np.uint32) << 16).view(np.float32)
