"""Let freed memory be used again by the next step instead of going back to the system.

A training step, or a federated round, allocates and frees the same large blocks as the one before.
glibc returns them to the system meanwhile, and more so in threads other than the first, which is
where clients and participants train; getting them back page by page took up to a tenth of a step,
and a quarter of a light round. Call this before threads start.
"""

from __future__ import annotations

import ctypes

# Of malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


def keep_memory() -> bool:
    """False where the C library has no such settings; nothing changes then."""
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is None:
        return False
    wanted = {_MMAP_MAX: 0, _ARENA_MAX: 1, _TRIM_THRESHOLD: 2**31 - 1}
    return all(setting(name, value) for name, value in wanted.items())
