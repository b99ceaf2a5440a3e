"""A call that is on its way: a future for threads, awaitable for asyncio.

The reply is unpickled where the result is asked for, not in the I/O thread: it may import modules.
When a call takes longer than it may, the actor's I/O thread is asked what its threads are doing,
and the error shows that beside what this process is doing.
"""

import asyncio
import contextlib
import itertools
import pickle
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future, InvalidStateError
from typing import Any, Protocol, TypeVar

from folkmoot.unified.rpc import values
from folkmoot.unified.rpc.errors import CallTimeout, RemoteError, RpcError, read_failure
from folkmoot.unified.rpc.frames import Kind, RpcFrame
from folkmoot.unified.rpc.io_loop import io_loop
from folkmoot.unified.rpc.stacks import stacks

T = TypeVar("T")
# How long the other side may take to say where it hangs.
EXPLAIN_SECONDS = 2.0
STACKS = "__stacks__"
NOT_CONNECTED = "nobody: the connection is not made yet"
_numbers = itertools.count(1)


class CallLine(Protocol):
    """What a call was sent over."""

    @property
    def where(self) -> str: ...

    def call(self, method: str, *arguments: Any, **keywords: Any) -> "Call[Any]": ...

    def forget(self, call: int) -> None: ...


class Call(Future[T]):
    """`result()` waits; `await` does too."""

    def __init__(self, actor: str, method: str) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()  # what was sent cannot be taken back
        self.actor, self.method = actor, method
        self.id = next(_numbers)
        self.since = time.monotonic()
        self.line: CallLine | None = None
        self.waits: int | None = None  # the thread that waits for it, or made it
        self._reading = threading.Lock()
        self._read = False
        self._value: Any = None

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        return f"<{self.method} of {self.actor}: {'done' if self.done() else 'on its way'}>"

    def result(self, timeout: float | None = None) -> T:
        """What the method returned; `CallTimeout` shows where it hangs."""
        self.waits = threading.get_ident()
        try:
            frame = super().result(timeout)
        except RemoteError as error:
            raise error from _cause(error)
        except TimeoutError:
            if self.done() or self.method == STACKS:
                raise
            raise self.overdue(self._their_stacks()) from None
        return self._open(frame)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        error = super().exception(timeout)
        if error is None:  # asyncio asks for this first, and then expects a result
            try:
                self._open(super().result())
            except RpcError as unreadable:
                return unreadable
        return error

    def reply(self, frame: RpcFrame) -> None:
        """For the I/O thread: what came back."""
        if frame.header.kind is not Kind.Result:
            failure = read_failure(frame.parts[0] if frame.parts else b"")
            return self.fail(RemoteError(self.actor, self.method, failure))
        with contextlib.suppress(InvalidStateError):  # given up just now
            self.set_result(frame)  # type: ignore[arg-type]  # opened by `result`
        return None

    def fail(self, error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):
            self.set_exception(error)

    def limit(self, seconds: float) -> None:
        """Let it fail when it takes longer, with the stacks of both sides."""
        timer = io_loop().after(seconds, self._expire)
        self.add_done_callback(lambda _: timer.cancel())

    def _expire(self) -> None:
        if self.done():
            return None
        try:
            asked = self._ask_where()
        except RpcError as error:
            return self._give_up(unexplained(error))
        if asked is None:
            return self._give_up(NOT_CONNECTED)
        timer = io_loop().after(EXPLAIN_SECONDS, lambda: self._give_up(unexplained(None)))

        def explained(answer: Future[Any]) -> None:
            timer.cancel()
            error = answer.exception()
            self._give_up(unexplained(error) if error else str(answer.result()))

        asked.add_done_callback(explained)
        return None

    def _give_up(self, theirs: str) -> None:
        if self.line is not None:
            self.line.forget(self.id)
        self.fail(self.overdue(theirs))

    def _ask_where(self) -> "Call[Any] | None":
        """Ask the other side what it is doing with this call."""
        return self.line.call(STACKS, self.id) if self.line is not None else None

    def overdue(self, theirs: str) -> CallTimeout:
        seconds = time.monotonic() - self.since
        note = {self.waits: f"waits for {self.method}"} if self.waits is not None else {}
        where = self.line.where if self.line is not None else "not connected yet"
        return CallTimeout(
            f"{self.method} of {self.actor} ({where}) has not returned after {seconds:.1f} s\n\n"
            f"There, {theirs}\n\nHere, {stacks(note)}"
        )

    def _open(self, frame: Any) -> T:
        with self._reading:
            if not self._read:
                self._value = _load(frame, self)
                self._read = True
            return self._value  # type: ignore[no-any-return]

    def _their_stacks(self) -> str:
        try:
            asked = self._ask_where()
            return NOT_CONNECTED if asked is None else str(asked.result(EXPLAIN_SECONDS))
        except (RpcError, TimeoutError) as error:
            return unexplained(error)


def unexplained(error: BaseException | None) -> str:
    if error is None or isinstance(error, TimeoutError):
        return (
            f"nobody says where: its I/O thread did not answer within {EXPLAIN_SECONDS:.0f} s. The"
            " process is stopped, or code outside Python holds the interpreter"
        )
    return f"nobody says where: {error}"


def _load(frame: RpcFrame, call: "Call[Any]") -> Any:
    try:
        return values.load(frame.parts)
    except Exception as error:
        raise RpcError(
            f"what {call.method} of {call.actor} returned cannot be read here:"
            f" {type(error).__name__}: {error}"
        ) from error


def _cause(error: RemoteError) -> BaseException | None:
    """The exception itself, if this process can make one of its type."""
    try:
        cause = pickle.loads(error.failure.pickled) if error.failure.pickled else None
    except Exception:  # its type is not here, or takes other arguments
        return None
    return cause if isinstance(cause, BaseException) else None
