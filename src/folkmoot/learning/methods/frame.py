"""How every payload begins, and what can be told of it without decoding.

    magic of the method, version, one setting     4 bytes
    fingerprint of model and settings             8 bytes

The model and the settings fix the length of what follows.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from blake3 import blake3

from folkmoot.learning.methods.protocol import Refusal

HEADER = 12
Shapes = Sequence[tuple[str, tuple[int, ...]]]


def fingerprint(shapes: Shapes, *settings: str | int) -> bytes:
    """Eight bytes that differ when names, shapes or what the payload holds differ."""
    return blake3(msgspec.json.encode([shapes, settings])).digest(length=8)


def check_frame(payload: bytes, header: bytes, size: int) -> Refusal | None:
    """Compare a payload's header and length with those of the run."""
    if len(payload) < HEADER:
        return Refusal("truncated", f"{len(payload)} bytes; the header alone has {HEADER}")
    if payload[:2] != header[:2]:
        return Refusal("not-this-method", f"starts with {payload[:2]!r}, expected {header[:2]!r}")
    if payload[2] != header[2]:
        return Refusal("version", f"format version {payload[2]}; this client reads {header[2]}")
    if payload[3] != header[3]:
        return Refusal("setting", f"format setting {payload[3]}; the run uses {header[3]}")
    if payload[4:HEADER] != header[4:]:
        return Refusal("fingerprint", "made for another model or other settings of the method")
    if len(payload) != size:
        reason = "truncated" if len(payload) < size else "trailing"
        return Refusal(reason, f"{len(payload)} bytes; this model's payloads have {size}")
    return None
