"""The C library takes the settings that let a step use the memory of the last one again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_glibc_takes_the_settings() -> None:
    # In a process of its own: they would stay for all tests after it.
    code = "from folkmoot.host.memory import keep_memory; print(keep_memory())"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "True\n"
