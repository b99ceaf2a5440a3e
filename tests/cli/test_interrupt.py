"""A signal ends what runs, whoever still listens."""

import os
import signal
import subprocess
import sys

SLEEPER = """
import asyncio, sys
from folkmoot.cli.interrupt import run_until_interrupted

async def work():
    print("ready", flush=True)
    await asyncio.Event().wait()

sys.exit(0 if run_until_interrupted(work()) else 3)
"""


def test_a_signal_ends_work_whose_terminal_is_gone() -> None:
    hear, tell = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, stderr=tell, text=True
    )
    os.close(tell)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.close(hear)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 3
    process.stdout.close()
