"""Tasks of an event loop that end with their owner."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def end_tasks(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel them, and wait until nothing of them is left."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


async def run_until_one_ends(*parts: Coroutine[Any, Any, None]) -> None:
    """Run these side by side until one ends, and with it the others; its exception is ours."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for ended in filter(asyncio.Task.done, tasks):
            ended.result()
    finally:
        await end_tasks(tasks)
