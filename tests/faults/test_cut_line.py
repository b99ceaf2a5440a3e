"""A whole run over lines that the kernel cuts or makes lossy."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults

ALONE = ["unshare", "-rn"]


@pytest.mark.parametrize("fault", ["one cut off", "all cut", "lossy"])
def test_a_run_outlasts_cut_and_lossy_lines(fault: str) -> None:
    if not (shutil.which("unshare") and shutil.which("ip") and shutil.which("tc")):
        pytest.skip("needs `unshare`, `ip` and `tc`")
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        pytest.skip("needs network namespaces")
    script = str(Path(__file__).with_name("cut_line.py"))
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [*ALONE, sys.executable, script, fault],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
