"""How every kernel is compiled: without the interpreter lock, kept on disk, IEEE arithmetic.

`fastmath` stays off: it would let the compiler reorder or fuse what all clients must round alike.
Division follows IEEE 754 instead of raising, as numpy's does, which also lets loops be vectorised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Any:
    return numba.njit(nogil=True, cache=True, fastmath=False, error_model="numpy")(function)
