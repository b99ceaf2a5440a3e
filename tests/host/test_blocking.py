"""Async functions from code that cannot await: a script, a thread, a notebook."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from folkmoot.host.blocking import blocking, blocking_context, run_blocking


@blocking
async def doubled(number: int) -> int:
    """Twice a number."""
    await asyncio.sleep(0)
    return 2 * number


@blocking
async def thread_name() -> str:
    return threading.current_thread().name


def test_it_waits_for_the_result() -> None:
    assert doubled(21) == 42
    assert doubled.__doc__ == "Twice a number."


async def test_it_works_where_a_loop_runs_already() -> None:
    assert doubled(21) == 42


def test_everything_runs_on_one_loop() -> None:
    assert thread_name() == thread_name() == "folkmoot"


def test_errors_come_back() -> None:
    async def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_blocking(fails())


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Hear Ctrl-C, which a script's background job ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_cancels_and_waits_for_the_end() -> None:
    said = []

    async def works() -> None:
        try:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            said.append("cancelled")
            raise

    with pytest.raises(KeyboardInterrupt):
        run_blocking(works())
    assert said == ["cancelled"]


def test_a_context_is_left_also_after_an_error() -> None:
    said = []

    @blocking_context
    @asynccontextmanager
    async def opened(name: str) -> AsyncIterator[str]:
        said.append("in")
        try:
            yield name
        finally:
            said.append("out")

    def fails() -> None:
        with opened("door") as door:
            raise ValueError(door)

    with pytest.raises(ValueError, match="door"):
        fails()
    assert said == ["in", "out"]
