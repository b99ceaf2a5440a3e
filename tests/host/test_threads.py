"""Threads beside an event loop that never keep a process from ending."""

import asyncio
import subprocess
import sys
import threading

import pytest

from folkmoot.host.threads import in_daemon_thread


async def test_a_result_and_an_error_come_back() -> None:
    assert await in_daemon_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_daemon_thread(divmod, 7, 0)


async def test_a_cancelled_caller_does_not_wait_for_a_daemon_thread() -> None:
    go_on = threading.Event()
    task = asyncio.create_task(in_daemon_thread(go_on.wait))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()


def test_a_process_ends_though_a_daemon_thread_does_not() -> None:
    code = """
import asyncio, threading
from folkmoot.host.threads import in_daemon_thread
async def main():
    task = asyncio.create_task(in_daemon_thread(threading.Event().wait))
    await asyncio.sleep(0)
    task.cancel()
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
