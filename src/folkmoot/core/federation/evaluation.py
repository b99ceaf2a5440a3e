"""What many found of one model, as one number.

The mean, weighted by samples: but nobody counts for more than ten times the median, as for updates,
since whoever says how many samples it has may say anything.
"""

from collections.abc import Sequence
from math import fsum

from folkmoot.core.federation.state import Delivery, Evaluation
from folkmoot.core.federation.weights import capped

MOST_TIMES = 10
#: No loss of use is larger; sums of such are finite.
MOST_LOSS = 1e30


def mean_evaluation(told: Sequence[Delivery]) -> Evaluation:
    """Their mean, and the samples that it stands for; all of them have an evaluation."""
    found = [delivery.evaluation for delivery in told if delivery.evaluation]
    samples = [one.samples for one in found]
    weights = capped(samples, [max(1, one.participants) for one in told], MOST_TIMES)
    total = fsum(weight * one.loss for weight, one in zip(weights, found, strict=True))
    return Evaluation(total / fsum(weights), sum(weights))
