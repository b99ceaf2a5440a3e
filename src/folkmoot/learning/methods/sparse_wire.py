"""The payload of one SparseLoCo contribution: the largest values, one byte each. Version 1.

    "FS", version, k                              4 bytes
    fingerprint of names, shapes and k            8 bytes
    levels    small and large, a bfloat16 each, per block of 16,384 values
    entries   k bytes per chunk of 64 values: position · 4 + (large: 2) + (negative: 1),
              positions strictly ascending

All parameters, sorted by name, are one row of values; the last chunk is filled up with zeros. Six
bits of position instead of the twelve that chunks of 4,096 need make room for almost twice as many
values. The model fixes the length, which is compared before anything is decoded.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from folkmoot.learning.methods.bfloat16 import AMPLITUDE_LIMIT, Floats, from_bfloat16, to_bfloat16
from folkmoot.learning.methods.frame import HEADER, Shapes, check_frame, fingerprint
from folkmoot.learning.methods.protocol import Refusal

VERSION = 1
CHUNK = 64
CHUNKS_PER_BLOCK = 256


class SparseWire:
    def __init__(self, shapes: Shapes, k: int) -> None:
        self.k = k
        self.count = sum(int(np.prod(shape)) for _, shape in shapes)
        self.chunks = -(-self.count // CHUNK)
        self.blocks = -(-self.chunks // CHUNKS_PER_BLOCK)
        self.header = b"FS" + bytes([VERSION, k]) + fingerprint(shapes, "sparse", k)
        self.entries = HEADER + 4 * self.blocks
        self.size = self.entries + self.chunks * k

    def pack(self, values: torch.Tensor) -> bytes:
        """The k largest of every chunk, each rounded to one of its block's two sizes."""
        rows = torch.zeros(self.chunks * CHUNK, device=values.device)
        rows[: self.count] = values
        rows = rows.view(-1, CHUNK)
        place = rows.abs().topk(self.k, sorted=False).indices.sort().values
        chosen = rows.gather(1, place).cpu().numpy()
        large, levels = self._sizes(np.abs(chosen))
        code = place.cpu().numpy() * 4 + large * 2 + (chosen < 0)
        return self.header + levels.astype("<u2").tobytes() + code.astype(np.uint8).tobytes()

    def _sizes(self, size: Floats) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint16]]:
        """Which values are large in their block, and the mean of the small and of the large."""
        starts = np.arange(0, self.chunks, CHUNKS_PER_BLOCK)
        block = np.arange(self.chunks) // CHUNKS_PER_BLOCK
        total = np.add.reduceat(size.sum(1, dtype=np.float64), starts)
        number = np.bincount(block) * self.k
        large = size > (total / number)[block, None]
        over = np.add.reduceat((size * large).sum(1, dtype=np.float64), starts)
        many = np.add.reduceat(large.sum(1), starts)
        means = (total - over) / np.maximum(number - many, 1), over / np.maximum(many, 1)
        return large, to_bfloat16(np.stack(means, axis=1).astype(np.float32))

    def unpack(self, payload: bytes) -> tuple[torch.Tensor, torch.Tensor]:
        """Places and values of a payload that passed `check`."""
        code = np.frombuffer(payload, np.uint8, offset=self.entries).reshape(-1, self.k)
        chunk = np.arange(self.chunks)[:, None]
        level = self._levels(payload)[chunk // CHUNKS_PER_BLOCK, (code >> 1) & 1]
        place = (chunk * CHUNK + (code >> 2)).reshape(-1)
        value = np.where(code & 1, -level, level).reshape(-1)
        inside = place < self.count
        return torch.from_numpy(place[inside]), torch.from_numpy(value[inside])

    def _levels(self, payload: bytes) -> Floats:
        raw = np.frombuffer(payload, "<u2", offset=HEADER, count=2 * self.blocks)
        return from_bfloat16(raw).reshape(-1, 2)

    def check(self, payload: bytes) -> Refusal | None:
        if (refusal := check_frame(payload, self.header, self.size)) is not None:
            return refusal
        levels = self._levels(payload)
        # Written so that NaN, which compares as false, is counted as out of range.
        if not ((levels >= 0) & (levels <= AMPLITUDE_LIMIT)).all():
            return Refusal("level", f"a level is not a number from 0 to {AMPLITUDE_LIMIT:g}")
        code = np.frombuffer(payload, np.uint8, offset=self.entries).reshape(-1, self.k)
        place = (code >> 2).astype(np.int8)
        if (np.diff(place, axis=1) <= 0).any():
            at = int(np.argmax((np.diff(place, axis=1) <= 0).any(axis=1)))
            return Refusal("order", f"the positions of chunk {at} do not ascend")
        return None
