"""Keeps a job's master alive: starts it, and starts it again when it dies, until the job is over.

The master is in a session of its own: it outlives a launcher that is killed, as its actors outlive
it.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from folkmoot.core.user_error import UserError
from folkmoot.host.clock import backoff
from folkmoot.host.processes import how_it_ended, start_apart
from folkmoot.unified.master.home import GIVE_UP, REPLACED, Home, HomeError, JobOutcome
from folkmoot.unified.substrate.open import warm_up

logger = logging.getLogger(__name__)
# A master that lived so long (seconds) has shown that it can: its next death is a new matter.
LIVED = 60.0
# Deaths of a master, one soon after the other, that are made good.
MOST_DEATHS = 10


class MasterError(UserError):
    """The job's master cannot be kept alive; the message says why."""


class MasterLauncher:
    def __init__(
        self,
        home: Home,
        say: Callable[[str], None] = logger.warning,
        take_over: bool = False,
    ) -> None:
        self._options = ["--take-over"] if take_over else []
        self._home, self._say = home, say
        self._master: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the master that runs now."""
        return self._master.pid if self._master else None

    def run(self) -> JobOutcome:
        """Until the job is over."""
        warm(self._home)
        deaths, delays = 0, backoff(0.05, 5.0)
        while True:
            began = time.monotonic()
            code = self._start().wait()
            if outcome := self._home.outcome():
                return outcome
            if time.monotonic() - began > LIVED:
                deaths, delays = 0, backoff(0.05, 5.0)
            deaths += 1
            if code in (GIVE_UP, REPLACED) or deaths > MOST_DEATHS:
                raise MasterError(self._last_words(code))
            self._say(
                f"the master {how_it_ended(code)}; another one goes on ({deaths} of {MOST_DEATHS})"
            )
            if deaths > 1:
                time.sleep(next(delays))

    def wait(self) -> JobOutcome:
        """For the end of a job that was asked to stop."""
        if self._master:
            self._master.wait()
        return self._home.outcome() or self.run()

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """Ask the master to stop the job."""
        if self._master:
            with contextlib.suppress(ProcessLookupError):
                self._master.send_signal(number)

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "folkmoot.unified.master", str(self._home.folder)]
        command += self._options
        self._options = []  # for the first one
        self._master = start_apart(command, self._home.log(".master"))
        return self._master

    def _last_words(self, code: int) -> str:
        lines = self._home.log(".master").read_text(errors="replace").splitlines()
        said = next((line for line in reversed(lines) if line.startswith("folkmoot: ")), "")
        if said:
            return said.removeprefix("folkmoot: ")
        return f"the master {how_it_ended(code)}, again and again:\n" + "\n".join(lines[-15:])


def warm(home: Home) -> None:
    """Let the fork server import while the master does."""
    if home.outcome() is None:
        said = home.settings()
        warm_up(said.substrate, home.run, said.preload, said.alone)


def submit(home: Home) -> None:
    """Start a launcher that outlives this process."""
    if home.outcome():
        raise HomeError(f"the job in {home.folder} is over: take another --folder to run it again")
    warm(home)
    command = [sys.executable, "-m", "folkmoot.unified.launcher", str(home.folder)]
    start_apart(command, home.log(".launcher"))


def main() -> int:
    from pathlib import Path

    logging.basicConfig(format="%(asctime)s %(message)s")
    launcher = MasterLauncher(Home(Path(sys.argv[1])))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: launcher.interrupt(signal.Signals(number)))
    try:
        launcher.run()
    except MasterError as error:
        print(f"folkmoot: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
