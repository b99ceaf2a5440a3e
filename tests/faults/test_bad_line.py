"""Gossip and content over a line that is made bad by the kernel."""

from pathlib import Path

import pytest

from support.namespace import run_alone

pytestmark = pytest.mark.faults

LINES = [
    "netem loss 5% delay 5ms 2ms",
    "netem delay 60ms 20ms",
    "tbf rate 40mbit burst 16kb limit 24kb",  # a short queue: what does not fit is lost
    "tbf rate 8mbit burst 16kb latency 300ms",
]


@pytest.mark.parametrize("line", LINES)
def test_everybody_gets_everything_over_a_bad_line(line: str) -> None:
    print(run_alone(Path(__file__).with_name("bad_line.py"), line=line, timeout=200))
