"""The weights as they were before a look-ahead moved them: three bytes of each, for an exact undo.

The lowest byte of a weight's bits never moves, so it need not be backed up. Where a look-ahead
leads is then off by 2⁻¹⁵ of a weight at most, which no gradient notices; the way back is exact.
"""

from __future__ import annotations

import msgspec
import torch

LOW_BYTE = 0xFF
"""The bits of a weight that a look-ahead leaves alone."""


class WeightBackup(msgspec.Struct, frozen=True, eq=False):
    high: torch.Tensor
    """The upper two bytes, as int16."""
    middle: torch.Tensor
    """The third, as uint8."""


def empty_backup(weights: torch.Tensor) -> WeightBackup:
    return WeightBackup(
        torch.empty_like(weights, dtype=torch.int16), torch.empty_like(weights, dtype=torch.uint8)
    )
