"""A signal ends what runs, whoever still listens."""

import os
import signal
import subprocess
import sys

import pytest

SLEEPER = """
import asyncio, sys
from folkmoot.cli.interrupt import run_until_interrupted

async def work():
    print("ready", flush=True)
    await asyncio.Event().wait()

sys.exit(0 if run_until_interrupted(work()) else 3)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_work_whose_terminal_is_gone(number: signal.Signals) -> None:
    hear, tell = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, stderr=tell, text=True
    )
    os.close(tell)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.close(hear)
    process.send_signal(number)
    assert process.wait(60) == 3
    process.stdout.close()


# What it reads comes after the signal.
READER = """
import asyncio, sys
from folkmoot.cli.interrupt import run_until_interrupted

async def work():
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

sys.exit(0 if run_until_interrupted(work()) else 3)
"""


def test_under_nohup_work_outlives_its_terminal() -> None:
    command, pipe = ["nohup", sys.executable, "-c", READER], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGHUP)
        _, said = process.communicate("go on\n", timeout=60)
        assert process.returncode == 0
        assert "interrupted" not in said
