"""Two cures for iroh's Python binding: outgoing bytes are copied at memory speed, errors are cheap.

The generated binding writes byte by byte in a Python loop, about 1 MB/s. One `memmove` does the
same work. `install` replaces exactly that method, and refuses a binding that is not the shape it
knows.

Where RUST_BACKTRACE is set, every error, a closed stream too, would walk the stack for about 0.1
s; `install` turns that off for errors (RUST_LIB_BACKTRACE) unless it was asked for, and leaves
panics alone.
"""

import ctypes
import os
from typing import Any

from iroh import iroh_ffi


def _write(self: Any, value: bytes | bytearray | memoryview) -> None:
    data = bytes(value)  # no copy when it is `bytes` already
    with self._reserve(len(data)):
        if data:
            at = ctypes.addressof(self.rbuf.data.contents) + self.rbuf.len
            ctypes.memmove(at, data, len(data))


def install() -> None:
    """Cure the binding; calling it again changes nothing."""
    builder = getattr(iroh_ffi, "_UniffiRustBufferBuilder", None)
    if builder is None or not {"write", "_reserve", "finalize"} <= set(vars(builder)):
        raise RuntimeError(
            "The installed iroh binding builds its buffers in a way this version of Folkmoot does "
            "not know; install iroh 1.2 (`pip install 'iroh>=1.2,<1.3'`)."
        )
    builder.write = _write
    os.environ.setdefault("RUST_LIB_BACKTRACE", "0")
