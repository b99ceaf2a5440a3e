"""A whole run over lines that the kernel cuts or makes lossy."""

from pathlib import Path

import pytest

from support.namespace import run_alone

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("fault", ["one cut off", "all cut", "lossy"])
def test_a_run_outlasts_cut_and_lossy_lines(fault: str) -> None:
    run_alone(Path(__file__).with_name("cut_line.py"), fault, timeout=280)
