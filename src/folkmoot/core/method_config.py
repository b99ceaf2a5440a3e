"""How the members of a run combine what they learn: one struct per exchange method.

Pure data, decoded strictly from a run's configuration (`type = "distro"` chooses the struct). The
learning rate is not here: it follows the run's schedule and is an argument of every call. The code
that carries it out is in `folkmoot.learning.methods`.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

Decay = Annotated[float, Meta(ge=0.0, lt=1.0)]
"""A coefficient of an exponential average: 0 forgets at once, values near 1 remember long."""
NonNegative = Annotated[float, Meta(ge=0.0)]
Positive = Annotated[float, Meta(gt=0.0)]
Delay = Annotated[int, Meta(ge=0, le=8)]
"""Rounds by which results trail: 0 applies round h before h + 1 trains, 1 applies it after h + 1
trained (so that a round's exchange overlaps the next round's training), and so on."""


class _Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every method's settings are: known by name, or refused."""


class DistroConfig(_Settings, frozen=True, kw_only=True, tag="distro"):
    """Momentum, DCT on chunks, top-k with error feedback, amplitudes of a few bits."""

    k: Annotated[int, Meta(ge=1, le=65536)] = 32
    """Coefficients sent per chunk (all of them, where a chunk has fewer)."""
    chunk: Annotated[int, Meta(ge=1, le=256)] = 64
    """Largest side of a chunk; the side used is the largest divisor of the dimension up to this."""
    bits: Literal[1, 16] = 1
    """Bits per amplitude: 1 sends the sign, 16 a bfloat16."""
    momentum: Decay = 0.95
    treatment: Literal["sign", "adam", "norm", "orthogonal"] = "orthogonal"
    """What is done with the decoded aggregate before the weights step along it."""
    beta2: Decay = 0.95
    """Decay of the second moment (treatment `adam`)."""
    eps: Positive = 1e-8
    delay: Delay = 1
    lookahead: NonNegative = 1.0
    """How far to look ahead per round in flight, in learning rates, when delay > 0; 0 is off."""
    clip: NonNegative = 1.0
    """Largest global norm of the gradient; 0 turns clipping off."""
    weight_decay: NonNegative = 0.0
    """Decoupled: each applied round shrinks the weights by lr · weight_decay."""
    weigh_alignment: bool = False
    """Whether a result that agrees less with the others than usual counts less."""


class DenseConfig(_Settings, frozen=True, kw_only=True, tag="dense"):
    """Everyone sends its whole gradient; the mean goes through one shared AdamW (or SGD)."""

    optimizer: Literal["adamw", "sgd"] = "adamw"
    bits: Literal[16, 32] = 32
    beta1: Decay = 0.9
    """AdamW's first moment; the momentum of SGD."""
    beta2: Decay = 0.95
    eps: Positive = 1e-8
    clip: NonNegative = 1.0
    weight_decay: NonNegative = 0.0


class LocalStepsConfig(_Settings, frozen=True, kw_only=True):
    """AdamW steps at home, between two exchanges."""

    local_steps: Annotated[int, Meta(ge=1, le=100_000)] = 30
    beta1: Decay = 0.9
    beta2: Decay = 0.95
    eps: Positive = 1e-8
    clip: NonNegative = 1.0
    weight_decay: NonNegative = 0.1


class DiLoCoConfig(LocalStepsConfig, frozen=True, kw_only=True, tag="diloco"):
    """Some AdamW steps at home, then one Nesterov step along the mean of how far everyone went."""

    outer_lr: Positive = 0.7
    outer_momentum: Decay = 0.9
    bits: Literal[16, 32] = 32


class SparseLoCoConfig(LocalStepsConfig, frozen=True, kw_only=True, tag="sparseloco"):
    """DiLoCo whose pseudo-gradient travels as error-fed top-k with 2-bit values."""

    local_steps: Annotated[int, Meta(ge=1, le=100_000)] = 16
    outer_lr: Positive = 1.0
    error_decay: Decay = 0.95
    k: Annotated[int, Meta(ge=1, le=64)] = 1
    """Values sent per chunk of 64, a byte each."""


class CustomConfig(_Settings, frozen=True, kw_only=True, tag="custom"):
    """A method of the run's own, which every member registers by this name before it joins."""

    name: str
    settings: dict[str, bool | int | float | str] = {}
    """What it is built with, besides the model."""


MethodConfig = DistroConfig | DenseConfig | DiLoCoConfig | SparseLoCoConfig | CustomConfig

C = TypeVar("C", DistroConfig, DenseConfig, DiLoCoConfig, SparseLoCoConfig)


def validated(config: C) -> C:
    """The same settings; a value out of range raises msgspec.ValidationError, naming the field."""
    return msgspec.convert(msgspec.to_builtins(config), type(config))
