"""Where calls to an actor run: a few threads of its own, one by default, beside its main thread.

An `async def` method runs on the background event loop instead and holds no thread. The I/O thread
answers what is exported as inline, among it the question where a call hangs.
"""

import asyncio
import contextvars
import functools
import inspect
import pickle
import threading
import time
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

import msgspec

from folkmoot.host.blocking import background_loop
from folkmoot.unified.rpc import values
from folkmoot.unified.rpc.call import STACKS
from folkmoot.unified.rpc.errors import Overloaded, RemoteFailure
from folkmoot.unified.rpc.frames import Kind, RpcFrame
from folkmoot.unified.rpc.handshake import Buffer
from folkmoot.unified.rpc.methods import RemoteMethods
from folkmoot.unified.rpc.stacks import stacks

MOST_WAITING = 10_000
LONGEST_TEXT = 256 * 1024


class ReplyTo(Protocol):
    """The connection over which a call came."""

    def send(self, kind: Kind, call: int, method: str, parts: list[Buffer]) -> None: ...


class CallTask(NamedTuple):
    """One call to carry out."""

    line: ReplyTo
    call: int
    method: str
    parts: list[memoryview]
    since: float


class Execution:
    def __init__(
        self, methods: RemoteMethods, threads: int = 1, most_waiting: int = MOST_WAITING
    ) -> None:
        self.methods = methods
        self._most_threads = threads
        self._most_waiting = most_waiting
        self._tasks: SimpleQueue[CallTask | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._waiting: dict[tuple[int, int], CallTask] = {}
        self._running: dict[int, CallTask] = {}  # by thread; 0 and below for what has none
        self._answered = threading.Condition()
        # Calls see the context of the actor they are for, also where several share a process.
        self._context = contextvars.copy_context()

    def take(self, line: ReplyTo, frame: RpcFrame) -> None:
        """For the I/O thread: carry a call out, here if it is inline and else in a thread."""
        header = frame.header
        task = CallTask(line, header.call, header.method, frame.parts, time.monotonic())
        if header.method == STACKS:
            return _answer(task, functools.partial(self._explain, line))
        try:
            method = self.methods.find(header.method)
        except LookupError as error:
            return _fail(task, error)
        if method.inline:
            return _answer(task, method.function)
        if len(self._waiting) >= self._most_waiting:
            many = f"{self.methods.owner} has {self._most_waiting} calls waiting already"
            return _fail(task, Overloaded(many))
        self._waiting[_key(task)] = task
        if len(self._threads) < min(self._most_threads, len(self._waiting) + len(self._running)):
            self._start_thread()
        return self._tasks.put(task)

    def drain(self, seconds: float) -> None:
        """Wait until every call that was taken is answered, so long at most."""
        with self._answered:
            self._answered.wait_for(lambda: not self._running and not self._waiting, seconds)

    def close(self) -> None:
        """No more threads than those that are busy; what waits is not carried out."""
        for _ in self._threads:
            self._tasks.put(None)

    def _start_thread(self) -> None:
        name = f"rpc {self.methods.owner}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        here = threading.get_ident()
        while (task := self._tasks.get()) is not None:
            self._running[here] = task
            self._waiting.pop(_key(task), None)
            try:
                self._context.copy().run(self._carry_out, task)
            finally:
                self._done(here)
            del task  # its arguments may be large

    def _carry_out(self, task: CallTask) -> None:
        try:
            function = self.methods.find(task.method).function
            arguments, keywords = values.load(task.parts)
            result = function(*arguments, **keywords)
        except BaseException as error:
            return _fail(task, error)
        if inspect.iscoroutine(result):
            return self._finish_later(task, result)
        return _reply(task, result)

    def _finish_later(self, task: CallTask, coroutine: Any) -> None:
        key = -task.call
        self._running[key] = task

        async def finish() -> None:
            try:
                result = await coroutine
            except BaseException as error:
                _fail(task, error)
                if isinstance(error, asyncio.CancelledError):
                    raise
            else:
                _reply(task, result)
            finally:
                self._done(key)

        asyncio.run_coroutine_threadsafe(finish(), background_loop())

    def _done(self, key: int) -> None:
        with self._answered:
            del self._running[key]
            self._answered.notify_all()

    def _explain(self, line: ReplyTo, call: int) -> str:
        """What this process does with a call, and what all its threads do."""
        now = time.monotonic()
        running, mine = dict(self._running), "it is not here: answered, or never arrived"
        notes = {}
        for thread, task in running.items():
            this = task.line is line and task.call == call
            ran = f"runs {task.method} since {now - task.since:.1f} s"
            notes[thread] = f"{ran}: this call" if this else ran
            mine = "it runs" if this else mine
        if any(task.line is line and task.call == call for task in list(self._waiting.values())):
            busy = ", ".join(task.method for task in running.values()) or "nothing"
            mine = f"it waits for a thread; what runs is {busy}"
        return f"{mine}; {stacks(notes)}"


def _key(task: CallTask) -> tuple[int, int]:
    return id(task.line), task.call


def _answer(task: CallTask, function: Callable[..., Any]) -> None:
    try:
        arguments, keywords = values.load(task.parts)
        result = function(*arguments, **keywords)
    except Exception as error:
        return _fail(task, error)
    return _reply(task, result)


def _reply(task: CallTask, result: object) -> None:
    try:
        task.line.send(Kind.Result, task.call, task.method, values.dump(result))
    except Exception as error:  # it cannot be pickled, or is too large
        _fail(task, error)


def _fail(task: CallTask, error: BaseException) -> None:
    failure = msgspec.msgpack.encode(_failure(error))
    task.line.send(Kind.Error, task.call, task.method, [failure])


def _failure(error: BaseException) -> RemoteFailure:
    # Without the frames of this file: they are the same for every call.
    inner = error.__traceback__.tb_next if error.__traceback__ else None
    told = "".join(traceback.format_exception(type(error), error, inner or error.__traceback__))
    try:
        pickled = pickle.dumps(error, 5)
    except Exception:  # many exceptions cannot be; their words go all the same
        pickled = b""
    kind = type(error).__name__
    return RemoteFailure(kind, str(error)[:LONGEST_TEXT], told[-LONGEST_TEXT:], pickled)
