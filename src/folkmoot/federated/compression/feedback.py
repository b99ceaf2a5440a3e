"""A participant's side: steps that are compressed, and what they lost, kept for the next one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from folkmoot.federated.compression.codec import (
    Compression,
    decoded,
    encode_step,
    is_compressed,
)
from folkmoot.federated.model_file.layout import Array, layout_of


class ErrorFeedback:
    """Compresses one participant's updates. It remembers one array for each of the model's."""

    def __init__(self) -> None:
        self._lost: dict[str, Array] = {}

    def compressed(
        self, arrays: Mapping[str, Array], reference: Mapping[str, Array], how: Compression
    ) -> dict[str, Array]:
        """The update `arrays` as a step from `reference`, and with it what the last ones lost."""
        travels: dict[str, Array] = {}
        for name, meta in layout_of(arrays).items():
            if not is_compressed(meta):
                travels[name] = arrays[name]
                continue
            step = np.subtract(arrays[name], reference[name], dtype=np.float64)
            if name in self._lost and self._lost[name].shape == step.shape:
                step += self._lost[name]
            encoded = encode_step(name, step.astype(np.float32), how)
            self._lost[name] = (step - decoded(name, step.shape, encoded, how)).astype(np.float32)
            travels |= encoded
        return travels
