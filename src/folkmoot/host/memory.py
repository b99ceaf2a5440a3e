"""Let freed memory be used again by the next step instead of going back to the system.

A training step allocates and frees the same large blocks as the step before. glibc returns them
to the system meanwhile, and more so in threads other than the first, which is where clients train;
getting them back page by page took up to a tenth of a step. Call this before threads start.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_EVERYTHING, _AS_MUCH_AS_OLD_ONES_TAKE = 2**30, 2**25


def keep_memory() -> bool:
    """False where the C library has no such settings; nothing changes then."""
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is None:
        return False
    mapped = setting(_MMAP_THRESHOLD, _EVERYTHING) or setting(
        _MMAP_THRESHOLD, _AS_MUCH_AS_OLD_ONES_TAKE
    )
    return bool(mapped and setting(_ARENA_MAX, 1) and setting(_TRIM_THRESHOLD, 2**31 - 1))
