"""The mean of masked updates, as a model that strategies read like any other.

Each span is the sum of the uploads modulo 2⁶⁴, plus the attempt's residue, decoded, plus the
reference. The sum is exact, so the mean does not depend on order, masks or attempts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np

from folkmoot.federated.aggregate import ModelUpdate
from folkmoot.federated.aggregate.checks import bad_layout, bad_samples
from folkmoot.federated.model_file.layout import (
    BLOCK,
    Array,
    ArrayMeta,
    Layout,
    ModelSink,
    ModelSource,
    read_blocks,
)
from folkmoot.federated.secure.config import SecureConfig
from folkmoot.federated.secure.fixed_point import Precision, decode, encode
from folkmoot.federated.secure.masks import Mask, Masker


def masked_layout(layout: Layout) -> Layout:
    """How a masked model is laid out: the same arrays, of 64-bit words."""
    return {name: ArrayMeta("I64", meta.shape) for name, meta in layout.items()}


def write_masked(
    model: ModelSource,
    reference: ModelSource,
    samples: int,
    masks: Sequence[Mask],
    precision: Precision,
    out: ModelSink,
) -> None:
    """A participant's upload: its step from the reference, in fixed point, masked."""
    masker, base = Masker(masks, model.layout), np.empty(BLOCK)
    weight = max(samples, 1)
    for name, start, values in model.blocks():
        step = base[: values.size]
        np.copyto(step, values)
        origin = np.empty(values.size, values.dtype)
        reference.read(name, start, origin)
        np.subtract(step, origin, out=step)
        words = encode(step, weight, precision)
        masker.add(name, start, words)
        out.write(name, start, words.view(np.int64))


def bad_masked_update(update: ModelUpdate, layout: Layout, rules: SecureConfig) -> str:
    """All that can be said against a masked update: its samples and the shape of its arrays."""
    if update.samples > rules.max_samples:
        return f"number_samples is {update.samples}; [secure] max_samples is {rules.max_samples}"
    wrong = bad_samples(update.samples, initial=False)
    return wrong or bad_layout(update.source.layout, masked_layout(layout))


class UnmaskedMean:
    """A `ModelSource`: the mean of `updates`, whose masks `residue` takes away."""

    def __init__(
        self,
        reference: ModelSource,
        updates: Sequence[ModelUpdate],
        residue: Sequence[Mask],
        precision: Precision,
        layout: Layout | None = None,
    ) -> None:
        """`layout` is the reference's, unless the mean is wanted in wider dtypes."""
        self.layout = layout or reference.layout
        self._reference, self._precision = reference, precision
        self._sources = [update.source for update in updates]
        self._residue, self._threads = residue, threading.local()
        self.samples = sum(max(update.samples, 1) for update in updates)

    def read(self, name: str, start: int, out: Array) -> None:
        meta = self.layout[name]
        total, upload = np.zeros(out.size, np.uint64), np.empty(out.size, np.int64)
        for source in self._sources:
            source.read(name, start, upload)
            np.add(total, upload.view(np.uint64), out=total)
        self._masker().add(name, start, total)
        mean = decode(total, self.samples, self._precision)
        # No mean of honest steps is beyond the limit; what is comes of nonsense under a mask.
        limit = self._precision.limit
        np.clip(mean, -limit, limit, out=mean)
        origin = np.empty(out.size, self._reference.layout[name].numpy)
        self._reference.read(name, start, origin)
        np.add(mean, origin, out=mean)
        if meta.numpy.kind in "iu":
            np.rint(mean, out=mean)
        out[:] = mean >= 0.5 if meta.numpy.kind == "b" else mean

    def _masker(self) -> Masker:
        """Strategies read from several threads, and a masker belongs to one."""
        if not hasattr(self._threads, "masker"):
            self._threads.masker = Masker(self._residue, self._reference.layout)
        masker: Masker = self._threads.masker
        return masker

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[str, int, Array]]:
        return read_blocks(self, size)
