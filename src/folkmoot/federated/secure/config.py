"""The `[secure]` table of a federation's config."""

from __future__ import annotations

import msgspec

from folkmoot.federated.secure.fixed_point import Precision
from folkmoot.federated.secure.messages import MAX_COHORT


class SecureConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Off by default. With it, the coordinator sees the sum of the updates and none of them."""

    enabled: bool = False
    # Share of the cohort that must stay to the end, and always more than two thirds: a coordinator
    # that lies about who dropped out needs the help of a third.
    threshold: float = 2 / 3
    # No sum is made of fewer.
    least_cohort: int = 3
    # The most a weight may move in a round; in the initial round, the largest weight.
    limit: float = 128.0
    # A step of 2^-24 is about what float32 resolves of weights near 1.
    fraction_bits: int = 24
    # The most samples a participant may count for.
    max_samples: int = 1_000_000
    # Seconds that a step waits for the slowest.
    step_timeout: float = 30.0

    def __post_init__(self) -> None:
        if not 2 / 3 - 1e-3 <= self.threshold <= 1:
            raise ValueError(f"threshold is {self.threshold}; expected from 2/3 to 1")
        if not 2 <= self.least_cohort <= MAX_COHORT:
            raise ValueError(f"least_cohort is {self.least_cohort}; expected 2 to {MAX_COHORT}")
        if not (self.limit > 0 and 0 <= self.fraction_bits <= 52 and self.max_samples >= 1):
            raise ValueError("limit and max_samples must be positive, fraction_bits from 0 to 52")
        if not self.step_timeout > 0:
            raise ValueError(f"step_timeout is {self.step_timeout}; expected more than 0 seconds")
        if not self.precision.fits(MAX_COHORT * self.max_samples):
            raise ValueError(
                f"limit {self.limit}, fraction_bits {self.fraction_bits} and max_samples "
                f"{self.max_samples} together do not fit 64 bits; lower one of them"
            )

    @property
    def precision(self) -> Precision:
        return Precision(self.limit, self.fraction_bits)
