"""Slow things in threads, beside an event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


async def in_daemon_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run in a thread of its own, which ends with the process.

    A store may take minutes to say that it does not answer. Meanwhile the learner goes on.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="store", daemon=True).start()
    return await asyncio.wrap_future(future)
