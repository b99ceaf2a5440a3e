"""Gossip and content over a line that is made bad by the kernel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults

ALONE = ["unshare", "-rn", "sh", "-c"]
LINES = [
    "netem loss 5% delay 5ms 2ms",
    "netem delay 60ms 20ms",
    "tbf rate 40mbit burst 16kb limit 24kb",  # a short queue: what does not fit is lost
    "tbf rate 8mbit burst 16kb latency 300ms",
]


def make(line: str) -> str:
    return f'ip link set lo up && tc qdisc add dev lo root {line} && exec "$@"'


@pytest.mark.parametrize("line", LINES)
def test_everybody_gets_everything_over_a_bad_line(line: str) -> None:
    if not (shutil.which("unshare") and shutil.which("tc")):
        pytest.skip("needs `unshare` and `tc`")
    if subprocess.run([*ALONE, make(line), "sh", "true"], capture_output=True).returncode:
        pytest.skip(f"this kernel does not offer `{line}` to a namespace of our own")
    script = str(Path(__file__).with_name("bad_line.py"))
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [*ALONE, make(line), "sh", sys.executable, script],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
