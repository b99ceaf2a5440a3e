"""Async work that Ctrl-C, SIGTERM and the end of the terminal end in order."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import typer

from folkmoot.host.end_signals import end_signals


def run_until_interrupted(work: Coroutine[Any, Any, Any]) -> bool:
    """Whether `work` was done before a signal cancelled it; a second signal ends it at once."""
    return asyncio.run(_run(work))


async def _run(work: Coroutine[Any, Any, Any]) -> bool:
    loop, task, heard = asyncio.get_running_loop(), asyncio.ensure_future(work), asyncio.Event()
    numbers = end_signals()

    def interrupt() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
        heard.set()
        task.cancel()
        with suppress(OSError):  # the terminal may be gone
            typer.echo("interrupted", err=True)

    for number in numbers:
        loop.add_signal_handler(number, interrupt)
    try:
        await task
    except asyncio.CancelledError:
        if not heard.is_set():
            raise
        return False
    return True
