"""What many found of one model, as one number.

The mean, weighted by samples: but nobody counts for more than ten times the median, as for updates,
since whoever says how many samples it has may say anything.
"""

from collections.abc import Sequence
from math import fsum

from folkmoot.core.federation.state import Evaluation

MOST_TIMES = 10
#: No loss of use is larger; sums of such are finite.
MOST_LOSS = 1e30


def mean_loss(told: Sequence[Evaluation]) -> float:
    median = sorted(one.samples for one in told)[(len(told) - 1) // 2]
    most = MOST_TIMES * median
    weights = [min(one.samples, most) for one in told]
    total = fsum(weight * one.loss for weight, one in zip(weights, told, strict=True))
    return total / fsum(weights)
