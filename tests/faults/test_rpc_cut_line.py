"""Calls to a machine that is gone without a word fail by themselves."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults

ALONE = ["unshare", "-rn"]


def test_a_cut_line_fails_the_calls_over_it() -> None:
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("needs `unshare` and `ip`")
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        pytest.skip("needs network namespaces")
    done = subprocess.run(
        [*ALONE, sys.executable, str(Path(__file__).with_name("rpc_cut_line.py"))],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "rollout-0 (incarnation 1" in done.stdout
