"""Scalars as every backend uses them."""

from __future__ import annotations

import numpy as np


def float32(x: float) -> float:
    """x rounded to float32, so that float64 and float32 arithmetic begin with the same number."""
    return float(np.float32(x))
