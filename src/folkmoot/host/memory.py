"""How the memory of a process that runs for long is kept, and looked through for garbage.

`keep_memory` lets freed memory be used again by the next step instead of going back to the system.
A training step, or a federated round, allocates and frees the same large blocks as the one before.
glibc returns them to the system meanwhile, and more so in threads other than the first, which is
where clients and participants train; getting them back page by page took up to a tenth of a step,
and a quarter of a light round.

`share_heap` is for a process that serves: glibc gives threads heaps of their own, and each grows to
the most that any of its threads ever held. A server has dozens that come and go, and took hundreds
of rounds to fill them one after the other.

Call either before threads start.

`collect_seldom` is for a process that serves, too: the interpreter walks through everything that
lives less often.
"""

from __future__ import annotations

import ctypes
import gc

# Of malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


def keep_memory() -> bool:
    """False where the C library has no such settings; nothing changes then."""
    return _set({_MMAP_MAX: 0, _ARENA_MAX: 1, _TRIM_THRESHOLD: 2**31 - 1})


def share_heap() -> bool:
    """Likewise; large blocks go back to the system as ever."""
    return _set({_ARENA_MAX: 1})


def collect_seldom() -> None:
    """What is there now stays to the end, and is not looked at again.

    Thousands of streams are thousands of live objects that every full collection walks through, a
    fifth of the processor time of a change. Of every request gRPC leaves a cycle of a few objects,
    which is found among the young: that must not be put off, or the process grows.
    """
    gc.freeze()
    gc.set_threshold(5_000, 100, 100)


def _set(wanted: dict[int, int]) -> bool:
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    return setting is not None and all(setting(name, value) for name, value in wanted.items())
