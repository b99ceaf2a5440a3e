"""The federated example: close to pooled data, far above anybody alone, and a plot."""

import re
from pathlib import Path

from support.examples import run_example


def test_the_federation_comes_close_to_pooled_data(tmp_path: Path) -> None:
    said = run_example("digits", "--out", tmp_path)
    federated, pooled, alone = map(float, re.findall(r"0\.\d+", said)[:3])
    assert federated > pooled - 0.03
    assert federated > alone + 0.15
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
