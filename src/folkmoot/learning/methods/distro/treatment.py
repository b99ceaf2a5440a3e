"""What is done with the decoded aggregate before the weights step along it.

Every client decodes the same aggregate x, so this costs nothing on the wire:

    sign   u = sign(x), as in the public design
    adam   v = β₂ v + (1 − β₂) x²;  u = x / (√(v / (1 − β₂ᵗ)) + ε)
    norm   u = x / rms(x over the whole parameter)
    orthogonal   u = x with equal singular values, chunk by chunk, made before the inverse transform
                 (orthogonal.py); `treat` has then nothing left to do

and then w = (1 − lr · weight_decay) · w − lr · u. The operations are written once here, in an order
that the backends follow; scalars are rounded to float32 before use, so both give the same bits.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from folkmoot.core.method_config import DistroConfig
from folkmoot.learning.methods.distro.plan import Plan
from folkmoot.learning.methods.distro.rounding import float32

SIGN, ADAM, NORM, ORTHOGONAL = range(4)
NUMBER = {"sign": SIGN, "adam": ADAM, "norm": NORM, "orthogonal": ORTHOGONAL}


class Stepping(msgspec.Struct, frozen=True):
    """The scalars of one application, each exactly representable in float32."""

    treatment: int
    weights: tuple[int, ...]
    """What each payload counts, …"""
    share: float
    """… and one divided by their sum."""
    lr: float
    decay: float
    """1 − lr · weight_decay."""
    beta2: float
    fresh: float
    """1 − β₂."""
    unbias: float
    """1 / (1 − β₂ᵗ)."""
    eps: float


def stepping(config: DistroConfig, weights: tuple[int, ...], applied: int, lr: float) -> Stepping:
    """For the `applied`-th application (from 1) of a run, of payloads that count so much."""
    return Stepping(
        treatment=NUMBER[config.treatment],
        weights=weights,
        share=float32(1.0 / sum(weights)),
        lr=float32(lr),
        decay=float32(1.0 - lr * config.weight_decay),
        beta2=float32(config.beta2),
        fresh=float32(1.0 - config.beta2),
        unbias=float32(1.0 / (1.0 - config.beta2**applied)),
        eps=float32(config.eps),
    )


def treat(
    s: Stepping, x: torch.Tensor, second: torch.Tensor | None, inverse_rms: torch.Tensor | None
) -> torch.Tensor:
    """The direction u for decoded values x; `second` is updated in place."""
    if s.treatment == SIGN:
        return torch.sign(x)
    if s.treatment == NORM:
        assert inverse_rms is not None
        return x * inverse_rms
    assert second is not None
    second.mul_(s.beta2).add_((x * x) * s.fresh)
    return x / (_root(second * s.unbias) + s.eps)


def _root(x: torch.Tensor) -> torch.Tensor:
    """The correctly rounded square root. torch's own in float32 goes through a vector library that
    rounds some results the other way; in float64, rounded once, it is exact."""
    wide = x.cpu() if x.device.type == "mps" else x  # that device has no float64
    return torch.sqrt(wide.double()).float().to(x.device)


def inverse_rms(plan: Plan, squares: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Per chunk, 1 / rms over its whole parameter, from every chunk's sum of squares.

    The transform is orthonormal, so coefficients have the norm of what they stand for. Sums run
    from the first to the last term (`cumsum` does; `sum` may not), so that all clients agree."""
    per_slot = np.zeros(len(plan.slots), np.float32)
    for position, slot in enumerate(plan.slots):
        total = np.cumsum(squares[slot.first : slot.first + slot.chunks])[-1]
        values = slot.chunks * plan.groups[slot.group].size
        per_slot[position] = 0.0 if total == 0.0 else 1.0 / np.sqrt(total / values)
    return per_slot[plan.owner]
