"""How every kernel is compiled: without the interpreter lock, cached on disk, IEEE arithmetic.

`fastmath` stays off: it would let the compiler reorder or fuse what all clients must round alike.
Division follows IEEE 754 instead of raising, as numpy's does, which also lets loops be vectorised.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Any:
    return numba.njit(nogil=True, cache=True, fastmath=False, error_model="numpy")(function)


def _forget_outdated(folder: Path) -> None:
    """Kernels contain each other and constants of the files above them, but numba compares what it
    cached with one source file each."""
    newest = max(source.stat().st_mtime for source in folder.parent.rglob("*.py"))
    for cached in folder.glob("__pycache__/*.nbi"):
        with suppress(FileNotFoundError):  # another process may be forgetting the same
            if cached.stat().st_mtime < newest:
                cached.unlink()


_forget_outdated(Path(__file__).parent)
