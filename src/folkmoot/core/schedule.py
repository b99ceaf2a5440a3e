"""Learning rates by step, and the batch size by tokens: pure functions of the run's progress."""

import math
from collections.abc import Iterator

import msgspec

from folkmoot.core.config import Broken, settle_floats


class _Warmup(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What every schedule begins with: from `warmup_init_lr` to `base_lr` in `warmup_steps`."""

    base_lr: float
    warmup_steps: int = 0
    warmup_init_lr: float = 0.0

    def __post_init__(self) -> None:
        settle_floats(self)

    def rules(self) -> Iterator[Broken]:
        for name in self.__struct_fields__:
            if not 0 <= getattr(self, name) < 2**32:
                yield Broken(name, "must be 0 or more, and less than 2^32")

    def lr(self, step: int) -> float:
        if step >= self.warmup_steps:
            return self._after_warmup(step - self.warmup_steps)
        gain = self.base_lr - self.warmup_init_lr
        return self.warmup_init_lr + gain * step / self.warmup_steps

    def _after_warmup(self, step: int) -> float:
        """The rate so many steps after the warmup."""
        return self.base_lr


class Constant(_Warmup, frozen=True, kw_only=True, tag="constant"):
    """The same after the warmup."""


class _Decay(_Warmup, frozen=True, kw_only=True):
    """From the end of the warmup down to `final_lr` at `total_steps`."""

    total_steps: int
    final_lr: float = 0.0

    def _gone(self, step: int) -> float:
        return _part(step, self.total_steps - self.warmup_steps)


class Linear(_Decay, frozen=True, kw_only=True, tag="linear"):
    """Straight down."""

    def _after_warmup(self, step: int) -> float:
        return self.base_lr + (self.final_lr - self.base_lr) * self._gone(step)


class Cosine(_Decay, frozen=True, kw_only=True, tag="cosine"):
    """Half a cosine down."""

    def _after_warmup(self, step: int) -> float:
        return self.final_lr + (self.base_lr - self.final_lr) * _half_cosine(self._gone(step))


class WarmupStableDecay(_Warmup, frozen=True, kw_only=True, tag="warmup_stable_decay"):
    """Flat for `stable_steps`, a cosine to `cosine_decay_final_lr`, then straight to the end."""

    stable_steps: int
    cosine_decay_steps: int
    cosine_decay_final_lr: float
    linear_decay_steps: int
    linear_decay_final_lr: float = 0.0

    def _after_warmup(self, step: int) -> float:
        if step < self.stable_steps:
            return self.base_lr
        step -= self.stable_steps
        middle = self.cosine_decay_final_lr
        if step < self.cosine_decay_steps:
            part = _part(step, self.cosine_decay_steps)
            return middle + (self.base_lr - middle) * _half_cosine(part)
        part = _part(step - self.cosine_decay_steps, self.linear_decay_steps)
        return middle + (self.linear_decay_final_lr - middle) * part


Schedule = Constant | Linear | Cosine | WarmupStableDecay


def _part(step: int, steps: int) -> float:
    return min(step / steps, 1.0) if steps > 0 else 1.0


def _half_cosine(part: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * part))


def batch_size(tokens: int, start: int, end: int, warmup_tokens: int) -> int:
    """The global batch after `tokens` tokens: a straight ramp from `start` to `end`.

    Whole numbers throughout, half rounds up: every client must find the same size.
    """
    if tokens >= warmup_tokens:
        return end
    return start + (2 * (end - start) * tokens + warmup_tokens) // (2 * warmup_tokens)
