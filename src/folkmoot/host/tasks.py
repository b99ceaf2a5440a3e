"""Tasks of an event loop that end with their owner."""

import asyncio
from collections.abc import Iterable
from typing import Any


async def end_tasks(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel them, and wait until nothing of them is left."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
