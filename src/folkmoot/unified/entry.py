"""What a role's `entry` names, as a `Worker`, and what comes of running it.

    package.module:Class       a `Worker`, or any class: made with the role's config, `run()` is
                               its work if it has one, and else it answers calls
    package.module:function    called with the role's config
    train.py --lr 0.1          a script, as `python train.py --lr 0.1` would run it, in this process
    -m package.train --lr 0.1  a module likewise

`SystemExit(0)` is success, as for any program; another exit code or an exception is a failure.
"""

import contextlib
import functools
import importlib
import inspect
import json
import os
import re
import runpy
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from folkmoot.unified.current import CurrentWorker, as_worker
from folkmoot.unified.rpc.methods import MARK, name_of
from folkmoot.unified.worker import Worker

OBJECT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_PYTHON = re.compile(r"(.*/)?python[\d.]*(\.exe)?")
_OURS = (__file__, runpy.__file__, "<frozen runpy>")
LONGEST = 64 * 1024


class EntryError(ValueError):
    """A role's entry names nothing that can be run."""


class EntryResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a worker's `start`."""

    ok: bool
    # What it returned, as JSON if it can be; one line of what went wrong.
    result: str = ""
    how: str = ""
    traceback: str = ""
    exit_code: int = 0


def make_worker(entry: str, current: CurrentWorker, args: Sequence[str] = ()) -> Worker:
    """The worker of an entry, with what others may call of it exported. INIT ends here."""
    with as_worker(current):
        worker = _worker(entry, current, args)
        if "status" not in current.methods.names():
            current.methods.export("status", worker.status, inline=True)
        return worker


def _worker(entry: str, current: CurrentWorker, args: Sequence[str]) -> Worker:
    if not OBJECT.fullmatch(entry):
        return _Command([*shlex.split(entry), *args])
    found = load(entry)
    _check_fits(found, entry, current)
    if inspect.isclass(found):
        made = found(**current.actor.config)
        current.methods.export_instance(made)
        return made if isinstance(made, Worker) else _Plain(made)
    _export_module(found, current)
    return _Plain(functools.partial(found, **current.actor.config))


def load(entry: str) -> Callable[..., Any]:
    """The class or function that `module:name` names."""
    found = find_object(entry)
    if not callable(found):
        raise EntryError(f"{entry} is no class and no function")
    return found  # type: ignore[no-any-return]


def find_object(entry: str) -> Any:
    """What `module:name` names; modules of the working folder count."""
    module_name, _, name = entry.partition(":")
    if not any(path in ("", os.getcwd()) for path in sys.path):
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # it is there, and imports something that is not
        raise EntryError(f"{entry}: there is no module {error.name!r}") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise EntryError(f"{entry}: {getattr(found, '__name__', found)} has no {part!r}")
        found = getattr(found, part)
    return found


def run(work: Callable[[], Any]) -> EntryResult:
    """Do a worker's work and say what came of it; raises nothing."""
    try:
        return EntryResult(ok=True, result=_text(work()))
    except SystemExit as error:
        return _exited(error)
    except BaseException as error:
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        return EntryResult(ok=False, how=_line(error), traceback=_traceback(error), exit_code=code)


class _Plain(Worker):
    """A function, or an object with or without `run()`."""

    def __init__(self, work: Any) -> None:
        self.work = work

    def start(self) -> Any:
        if isinstance(self.work, functools.partial):
            return self.work()
        run = getattr(self.work, "run", None)
        return run() if callable(run) else super().start()

    def stop(self) -> None:
        super().stop()
        stop = getattr(self.work, "stop", None)
        if callable(stop):
            stop()


class _Command(Worker):
    """A script or module, run as Python would."""

    def __init__(self, words: list[str]) -> None:
        if words and _PYTHON.fullmatch(words[0]):
            words = words[1:]
        if not words or (words[0] == "-m" and len(words) < 2):
            raise EntryError("the command names no script")
        self.words = words
        if words[0] != "-m" and not Path(words[0]).exists():
            raise EntryError(f"there is no script {words[0]!r} in {os.getcwd()}")

    def start(self) -> Any:
        if self.words[0] == "-m":
            with _argv(self.words[1:], os.getcwd()):
                runpy.run_module(self.words[1], run_name="__main__", alter_sys=True)
        else:
            with _argv(self.words, str(Path(self.words[0]).resolve().parent)):
                runpy.run_path(self.words[0], run_name="__main__")


@contextlib.contextmanager
def _argv(words: list[str], folder: str) -> Iterator[None]:
    before = sys.argv, list(sys.path)
    sys.argv = list(words)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before


def _check_fits(found: Callable[..., Any], entry: str, current: CurrentWorker) -> None:
    """Say which part of the config is wrong, before it is a TypeError somewhere."""
    config = current.actor.config
    try:
        if inspect.isclass(found) and issubclass(found, Worker):  # its `__new__` takes anything
            inspect.signature(found.__init__).bind(None, **config)
        else:
            inspect.signature(found).bind(**config)
    except ValueError:  # it has no signature that can be read
        pass
    except TypeError as error:
        given = ", ".join(config) or "nothing"
        raise EntryError(
            f"{entry} does not take the config of the role {current.actor.role} ({given}): {error}"
        ) from None


def _export_module(function: Callable[..., Any], current: CurrentWorker) -> None:
    """The marked functions beside a function that is a role's entry."""
    module = sys.modules.get(function.__module__)
    known = current.methods.names()
    for other in list(vars(module).values()) if module else []:
        marked = inspect.isfunction(other) and hasattr(other, MARK)
        if marked and other.__module__ == function.__module__ and name_of(other) not in known:
            current.methods.export(name_of(other), other)


def _exited(error: SystemExit) -> EntryResult:
    if error.code in (None, 0):
        return EntryResult(ok=True)
    code = error.code if isinstance(error.code, int) else 1
    return EntryResult(
        ok=False, how=f"exit code {error.code}", traceback=_traceback(error), exit_code=code
    )


def _text(result: Any) -> str:
    if result is None:
        return ""
    try:
        return json.dumps(result)[:LONGEST]
    except (TypeError, ValueError, RecursionError):
        return repr(result)[:LONGEST]


def _line(error: BaseException) -> str:
    return traceback.format_exception_only(type(error), error)[-1].strip()[:1000]


def _traceback(error: BaseException) -> str:
    """From the user's code on: what called it says nothing."""
    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename in _OURS:
        inner = inner.tb_next
    told = traceback.format_exception(type(error), error, inner or error.__traceback__)
    return "".join(told)[-LONGEST:]
