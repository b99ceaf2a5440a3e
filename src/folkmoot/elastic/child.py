"""One rank as a child process: every line it prints comes out with its rank in front."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

# Seconds for which what a dead rank printed is still read; a child of its own may hold the pipe.
LAST_WORDS = 2.0
_lock = threading.Lock()


class Child:
    """Runs from the start. `ended` is called with it, in a thread, as soon as it has ended."""

    def __init__(
        self,
        rank: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        ended: Callable[["Child"], None],
    ) -> None:
        self.rank = rank
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C in the terminal is the launcher's to hand on
        )
        self._pumps = [
            threading.Thread(target=self._pump, args=pipes, daemon=True)
            for pipes in (
                (self._process.stdout, sys.stdout.buffer),
                (self._process.stderr, sys.stderr.buffer),
            )
        ]
        for pump in self._pumps:
            pump.start()
        self._ended = ended
        threading.Thread(target=self._await_end, daemon=True).start()

    @property
    def code(self) -> int:
        """As subprocess has it: a negative number is a signal."""
        return self._process.wait()

    @property
    def exit_code(self) -> int:
        """As a shell has it."""
        return self.code if self.code >= 0 else 128 - self.code

    @property
    def how(self) -> str:
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        return f"was ended by {signal.Signals(-self.code).name}"

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)  # nothing, if it has ended

    def wait(self, seconds: float) -> bool:
        """Whether it ends within this time."""
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return False
        for pump in self._pumps:
            pump.join(LAST_WORDS)
        return True

    def _pump(self, pipe: IO[bytes], out: IO[bytes]) -> None:
        prefix = f"[{self.rank}] ".encode()
        for line in pipe:
            # Whoever listened may be gone. A rank whose lines nobody takes would stand still.
            with _lock, suppress(OSError):
                out.write(prefix + line.rstrip(b"\n") + b"\n")
                out.flush()

    def _await_end(self) -> None:
        self._process.wait()
        self._ended(self)
