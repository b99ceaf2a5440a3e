"""Scripts in a network namespace of their own, whose lines the kernel counts, cuts, makes bad."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def run_alone(script: Path, *words: str, line: str = "", timeout: float) -> str:
    """What the script prints until it has ended well, its loopback as `tc` makes it from `line`.

    The test is skipped where there are no network namespaces, or not with such a line.
    """
    if missing := [tool for tool in ("unshare", "ip", "tc") if not shutil.which(tool)]:
        pytest.skip(f"needs {', '.join(missing)}")
    bad = f" && tc qdisc add dev lo root {line}" if line else ""
    alone = ["unshare", "-rn", "sh", "-c", f'ip link set lo up{bad} && exec "$@"', "sh"]
    tried = subprocess.run([*alone, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"needs a network namespace, {line or 'its lines as they are'}: {tried.stderr}")
    done = subprocess.run(
        [*alone, sys.executable, str(script), *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
