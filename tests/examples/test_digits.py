"""The federated example: close to pooled data, far above anybody alone, and a plot."""

import os
import re
import subprocess
import sys
from pathlib import Path

import folkmoot

SCRIPT = Path(folkmoot.__file__).parents[2] / "examples" / "digits.py"


def test_the_federation_comes_close_to_pooled_data(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    federated, pooled, alone = map(float, re.findall(r"0\.\d+", done.stdout)[:3])
    assert federated > pooled - 0.03
    assert federated > alone + 0.15
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
