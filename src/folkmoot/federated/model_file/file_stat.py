"""What the system says of a file: whether only we can have written it, and its stamp.

By its stamp another process of this machine knows that a file is the one that was meant, and that
nobody has changed it since. It covers the machine since it was started, the file's number on its
disk, and the times of its last changes, which the system sets and nobody but the administrator can
set back. A file that somebody else may write to has no stamp, nor has any where the system does not
say which start it is.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from blake3 import blake3


def _start() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return ""


START = _start()


def only_we_can_write(found: os.stat_result) -> bool:
    """Whether this is a plain file of our own that nobody else may write to."""
    others = stat.S_IWGRP | stat.S_IWOTH
    own = found.st_uid == os.geteuid() and not found.st_mode & others
    return own and stat.S_ISREG(found.st_mode)


def stamp(found: os.stat_result) -> bytes:
    """The stamp of the file that looks like this; empty when it can have none."""
    if not START or not only_we_can_write(found):
        return b""
    times = (found.st_mtime_ns, found.st_ctime_ns)
    text = f"{START} {found.st_dev} {found.st_ino} {found.st_size} {times}"
    digest: bytes = blake3(text.encode()).digest()
    return digest
