"""Child processes by name: each prints into a file of its own, and none outlives its parent.

    with Processes(folder) as processes:
        address = processes.start_ready("server", serve)
        processes.start("worker", [*work, address])
        processes.wait()

A process that must be waited for is given one end of a pipe: it writes there once it is ready, and
the pipe closes by itself when it ends before that.
"""

import os
import select
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import Signals
from typing import Self

from folkmoot.core.user_error import UserError
from folkmoot.host.end_signals import ended_like_ctrl_c

# How long a process may take to say that it is ready, and to end when it is asked to.
START_TIME, STOP_TIME = 60.0, 20.0
TAIL = 15


def how_it_ended(code: int) -> str:
    """A clause, of Popen's code."""
    return f"ended with exit code {code}" if code >= 0 else f"was ended by {Signals(-code).name}"


def start_apart(
    command: Sequence[str],
    output: Path,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own, which no Ctrl-C in our terminal reaches.

    What it prints is added to the file `output`.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=env,
            start_new_session=True,
            pass_fds=pass_fds,
        )


class Processes:
    """Starts processes and stops every one of them, however the block ends."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`environment` is added to ours; `on_end` is called, in a thread, when one has ended."""
        self.folder = folder
        self._environment = {**os.environ, **(environment or {})}
        self._on_end = on_end
        self._ended = threading.Event()
        self._known: set[str] = set()  # those whose end is known
        self._all: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._signals = ended_like_ctrl_c()
        self._signals.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()
        self._signals.__exit__(None, None, None)

    def __getitem__(self, name: str) -> subprocess.Popen[bytes]:
        return self._all[name]

    def start(self, name: str, command: Sequence[str], pass_fds: Sequence[int] = ()) -> None:
        """Start a process; a name whose process has ended may be used again."""
        assert name not in self._all or self._all[name].poll() is not None, f"{name} still runs"
        self._known.discard(name)
        output = self.folder / name / "output.txt"
        process = start_apart(command, output, self._environment, pass_fds)
        self._all[name] = process
        threading.Thread(target=self._await_end, args=(process,), daemon=True).start()

    def start_ready(self, name: str, command: Sequence[str]) -> str:
        """Start a process and wait for what it writes to the descriptor that --ready-fd names."""
        hear, tell = os.pipe()
        with os.fdopen(hear, "rb") as pipe:
            try:
                self.start(name, [*command, f"--ready-fd={tell}"], pass_fds=(tell,))
            finally:
                os.close(tell)
            ready, _, _ = select.select([pipe], [], [], START_TIME)
            said = pipe.read() if ready else b""
        if not said:
            raise UserError(f"{name} did not start:\n{self.output(name)}")
        return said.decode()

    def pids(self) -> dict[str, int]:
        """Of those that run."""
        return {name: p.pid for name, p in self._all.items() if p.poll() is None}

    def kill(self, name: str) -> None:
        """End a process as a power cut would."""
        self._known.add(name)
        self._all[name].kill()
        self._all[name].wait()

    def failed(self) -> list[str]:
        """Processes that ended with an error since the last call, not killed by us."""
        ended = [name for name, p in self._all.items() if p.poll() not in (None, 0)]
        new = [name for name in ended if name not in self._known]
        self._known.update(new)
        return new

    def output(self, name: str) -> str:
        """The last lines that a process printed."""
        lines = (self.folder / name / "output.txt").read_text(errors="replace").splitlines()
        return "\n".join(lines[-TAIL:])

    def wait(self, seconds: float | None = None) -> None:
        """Until a process ends, but no longer than this."""
        self._ended.wait(seconds)
        self._ended.clear()

    def stop(self) -> None:
        """Ask all to end, the latest first; end those that do not."""
        processes = list(reversed(self._all.values()))
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            try:
                process.wait(STOP_TIME)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _await_end(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._ended.set()
        self._on_end()
