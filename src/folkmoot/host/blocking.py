"""Async functions for code without an event loop of its own: scripts, notebooks, threads.

Everything runs on one loop in one background thread, made at first use. So it works where a loop is
running already (a notebook has one), and gRPC, which suffers from several loops, sees one.
"""

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@functools.cache
def background_loop() -> asyncio.AbstractEventLoop:
    """The one loop, in its own thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="folkmoot", daemon=True).start()
    return loop


os.register_at_fork(after_in_child=background_loop.cache_clear)  # a fork has no such thread


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Carry `work` out and wait for it. Ctrl-C cancels it, and is raised when it has ended."""
    loop, ended = background_loop(), threading.Event()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        tasks.append(loop.create_task(work))
        tasks[0].add_done_callback(lambda _: ended.set())

    def cancel() -> None:
        if tasks:
            tasks[0].cancel()
        else:  # interrupted before it could start
            work.close()
            ended.set()

    try:
        loop.call_soon_threadsafe(start)
        ended.wait()
    except BaseException:
        loop.call_soon_threadsafe(cancel)
        ended.wait()
        raise
    return tasks[0].result()


def blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """The same function for callers that cannot await."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_blocking(function(*args, **kwargs))

    return call


def blocking_context(
    function: Callable[P, AbstractAsyncContextManager[T]],
) -> Callable[P, AbstractContextManager[T]]:
    """The same, for `with` instead of `async with`."""

    @contextmanager
    def enter(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        async def opened() -> tuple[AbstractAsyncContextManager[T], T]:
            context = function(*args, **kwargs)
            return context, await context.__aenter__()

        context, value = run_blocking(opened())
        try:
            yield value
        finally:
            run_blocking(context.__aexit__(None, None, None))

    return functools.wraps(function)(enter)
