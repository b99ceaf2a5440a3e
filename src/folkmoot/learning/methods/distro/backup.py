"""The weights as they were, while a look-ahead has moved them: three bytes of each.

The lowest byte of a weight's bits never moves, so it need not be kept. Where a look-ahead leads is
then off by 2⁻¹⁵ of a weight at most, which no gradient notices; the way back is exact.
"""

from __future__ import annotations

import msgspec
import torch

LOW = 0xFF
"""The bits that stay."""


class Kept(msgspec.Struct, frozen=True, eq=False):
    high: torch.Tensor
    """The upper two bytes, as int16."""
    middle: torch.Tensor
    """The third, as uint8."""


def room_for(weights: torch.Tensor) -> Kept:
    return Kept(
        torch.empty_like(weights, dtype=torch.int16), torch.empty_like(weights, dtype=torch.uint8)
    )
