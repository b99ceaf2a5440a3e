"""The payload of a method that sends every value: dense averaging and DiLoCo. Version 1.

    "FW", version, bits per value (32 or 16)     4 bytes
    fingerprint of names, shapes and method      8 bytes
    the values, little-endian float32 or bfloat16, parameters sorted by name

The model fixes the length, which is compared before anything is decoded.
"""

from __future__ import annotations

import numpy as np
import torch

from folkmoot.learning.methods.bfloat16 import AMPLITUDE_LIMIT, from_bfloat16, to_bfloat16
from folkmoot.learning.methods.frame import HEADER, Shapes, check_frame, fingerprint
from folkmoot.learning.methods.protocol import Refusal

VERSION = 1


class DenseWire:
    def __init__(self, shapes: Shapes, method: str, bits: int) -> None:
        self.bits = bits
        self.count = sum(int(np.prod(shape)) for _, shape in shapes)
        self.header = b"FW" + bytes([VERSION, bits]) + fingerprint(shapes, method, bits)
        self.size = HEADER + self.count * bits // 8

    def pack(self, values: torch.Tensor) -> bytes:
        bounded = np.clip(values.detach().cpu().numpy(), -AMPLITUDE_LIMIT, AMPLITUDE_LIMIT)
        if self.bits == 16:
            return self.header + to_bfloat16(bounded).astype("<u2").tobytes()
        return self.header + bounded.astype("<f4").tobytes()

    def unpack(self, payload: bytes) -> torch.Tensor:
        """The values of a payload that passed `check`, the caller's to change."""
        return torch.from_numpy(self._values(payload))

    def _values(self, payload: bytes) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        raw = np.frombuffer(payload, np.uint8, offset=HEADER)
        if self.bits == 16:
            return from_bfloat16(raw.view("<u2"))
        return raw.view("<f4").astype(np.float32)

    def check(self, payload: bytes) -> Refusal | None:
        if (refusal := check_frame(payload, self.header, self.size)) is not None:
            return refusal
        # Written so that NaN, which compares as false, is counted as out of range.
        within = np.abs(self._values(payload)) <= AMPLITUDE_LIMIT
        if within.all():
            return None
        at = int(np.argmin(within))
        return Refusal("value", f"value {at} is not a number up to {AMPLITUDE_LIMIT:g} in size")
