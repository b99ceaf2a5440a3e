"""The mark of a file: by it another process of this machine knows that the file is the one that was
meant, and that nobody has changed it since.

It covers the machine since it was started, the file's number on its disk, and the times of its last
changes, which the system sets and nobody but the administrator can set back. A file that somebody
else may write to has no mark, nor has any where the system does not say which start it is.
"""

from __future__ import annotations

import os
from pathlib import Path

from blake3 import blake3

from folkmoot.federated.model_file.layout import only_ours


def _start() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return ""


START = _start()


def mark(found: os.stat_result) -> bytes:
    """The mark of the file that looks like this; empty when it can have none."""
    if not START or not only_ours(found):
        return b""
    times = (found.st_mtime_ns, found.st_ctime_ns)
    text = f"{START} {found.st_dev} {found.st_ino} {found.st_size} {times}"
    digest: bytes = blake3(text.encode()).digest()
    return digest
