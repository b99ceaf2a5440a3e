"""The C library takes the settings that let a step use the memory of the last one again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
@pytest.mark.parametrize("name", ["keep_memory", "share_heap"])
def test_glibc_takes_the_settings(name: str) -> None:
    # In a process of its own: they would stay for all tests after it.
    code = f"from folkmoot.host.memory import {name}; print({name}())"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "True\n"


HEAPS = """
import sys, threading
from folkmoot.host.memory import share_heap
if sys.argv[1] == "shared":
    share_heap()
both = threading.Barrier(5)
threads = [threading.Thread(target=both.wait) for _ in range(4)]
[thread.start() for thread in threads]
maps = [line.split()[:2] for line in open("/proc/self/maps")]
both.wait()
# A heap beside the first is reserved whole, 64 MB, and most of it may not be touched yet.
sizes = [[int(end, 16) for end in where.split("-")] for where, may in maps if may == "---p"]
print(sum(end - start > 60e6 for start, end in sizes))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
@pytest.mark.skipif(sys.maxsize < 2**32, reason="heaps are smaller there")
def test_threads_share_one_heap() -> None:
    found = {}
    for how in ("own", "shared"):
        command = [sys.executable, "-c", HEAPS, how]
        found[how] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert found["own"] > found["shared"] == 0
