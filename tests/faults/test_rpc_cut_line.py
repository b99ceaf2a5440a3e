"""Calls to a machine that is gone without a word fail by themselves."""

from pathlib import Path

import pytest

from support.namespace import run_alone

pytestmark = pytest.mark.faults


def test_a_cut_line_fails_the_calls_over_it() -> None:
    printed = run_alone(Path(__file__).with_name("rpc_cut_line.py"), timeout=100)
    assert "rollout-0 (incarnation 1" in printed
