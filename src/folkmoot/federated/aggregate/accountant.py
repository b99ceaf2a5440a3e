"""What has been spent: ε for a δ after a number of noisy rounds, by Google's `dp-accounting`.

The unit of privacy is a participant with all its data, added or removed. Rounds compose by Rényi
divergence. No amplification by sampling is claimed: participants are selected, not drawn by
independent coins, so the bound counts a participant in every round that was made.
"""

from __future__ import annotations

from importlib.util import find_spec


def epsilon(noise_multiplier: float, rounds: int, delta: float) -> float:
    """ε(δ) of `rounds` sums, each with noise of `noise_multiplier` times its sensitivity."""
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    if rounds == 0:
        return 0.0
    accountant = RdpAccountant()
    accountant.compose(GaussianDpEvent(noise_multiplier), rounds)
    return float(accountant.get_epsilon(delta))


def installed() -> bool:
    return find_spec("dp_accounting") is not None
