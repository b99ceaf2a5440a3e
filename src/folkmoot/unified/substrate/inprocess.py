"""Actors as threads of this process: for tests, and to stop in one with a debugger.

They live and die with the master. A thread cannot be killed: it is cut off (`at_kill`), and
`Killed` is raised at its next line of Python.
"""

import ctypes
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module

from folkmoot.core.job.messages import Place, Placed
from folkmoot.unified.substrate import Created, Ended, Found, Launch, Name, Tell

NODE = "inprocess"
_here = threading.local()


class Killed(BaseException):
    """What an actor's thread meets when its actor is killed."""


class _Life:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.thread: threading.Thread | None = None
        self.cuts: list[Callable[[], None]] = []


def at_kill(cut: Callable[[], None]) -> None:
    """Have this done when the actor whose thread this is is killed, in the killer's thread."""
    life: _Life | None = getattr(_here, "life", None)
    if life:
        life.cuts.append(cut)


def shares_process() -> bool:
    """Whether this thread is one of several actors in this process."""
    return getattr(_here, "life", None) is not None


class InProcessSubstrate:
    host = ""

    def __init__(self) -> None:
        self._lives: dict[Name, _Life] = {}
        self._lock = threading.Lock()

    def open(self, epoch: int, tell: Tell) -> Found:
        self._tell = tell
        pid = os.getpid()
        return Found(tuple(Created(*name, NODE, pid) for name in self._lives), ())

    def announce(self, address: str) -> None:
        """The address of a master does not change while this process lives."""

    def place(self, order: Place) -> None:
        actors = [actor for bundle in order.bundles for actor in bundle.actors]
        self._tell(Placed(order.gang, dict.fromkeys(actors, NODE)))

    def release(self, gang: str) -> None:
        """Nothing was taken."""

    def create(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            life = _Life(launch)
            with self._lock:
                if launch.name in self._lives:
                    continue
                self._lives[launch.name] = life
            name = str(launch.name)
            life.thread = threading.Thread(target=self._run, args=(life,), name=name, daemon=True)
            self._tell(Created(*launch.name, NODE, os.getpid()))
            life.thread.start()

    def kill(self, name: Name) -> None:
        with self._lock:
            life = self._lives.get(name)
        if life is None or life.thread is None:
            return
        for cut in life.cuts:
            cut()
        _raise_in(life.thread, Killed)
        self._ended(life, "was killed")

    def end(self) -> None:
        for name in [*self._lives]:
            self.kill(name)

    def close(self) -> None:
        pass

    def _run(self, life: _Life) -> None:
        _here.life = life
        module, _, function = life.launch.main.partition(":")
        try:
            code = getattr(import_module(module), function)(life.launch.argument) or 0
        except Killed:
            return
        except SystemExit as left:
            code = left.code or 0
        except BaseException:
            traceback.print_exc(file=sys.stderr)
            code = 1
        self._ended(life, f"ended with exit code {code}", clean=code == 0)

    def _ended(self, life: _Life, how: str, clean: bool = False) -> None:
        with self._lock:
            told = self._lives.pop(life.launch.name, None) is None
        if not told:
            self._tell(Ended(*life.launch.name, how, clean))


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    assert thread.ident is not None
    ident = ctypes.c_ulong(thread.ident)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(error))
