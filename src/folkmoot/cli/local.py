"""A whole run on this machine: a server and clients, each a process of its own."""

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

# How long a process may take to say where it listens, and to end when it is asked to.
START_TIME, STOP_TIME = 60.0, 20.0


class LocalRun:
    """Starts processes and stops every one of them, however the block ends."""

    def __init__(self, file: Path, run_id: str, folder: Path, threads: int = 1) -> None:
        self.file, self.run_id, self.folder, self.threads = file, run_id, folder, threads
        self.server: subprocess.Popen[bytes] | None = None
        self.clients: dict[str, subprocess.Popen[bytes]] = {}
        self._next = 1
        self._ended = threading.Event()
        self._known: set[str] = set()  # clients whose end is known

    def __enter__(self) -> Self:
        # Asked to end, we end like on Ctrl-C: the processes must not outlive us.
        self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        signal.signal(signal.SIGTERM, self._before)

    @property
    def address(self) -> str:
        return (self.folder / "server" / "address").read_text().strip()

    def serve(self, listen: str = "127.0.0.1:0") -> None:
        """Start the server and wait until it listens."""
        hear, tell = os.pipe()
        state = f"--state={self.folder / 'server'}"
        words = ["serve", str(self.file), f"--listen={listen}", state, f"--ready-fd={tell}"]
        try:
            self.server = self._start("server", *words, hand_on=(tell,))
        finally:
            os.close(tell)
        # Its end of the pipe speaks when it listens, and closes when it ends.
        with os.fdopen(hear, "rb") as pipe:
            ready, _, _ = select.select([pipe], [], [], START_TIME)
            if not ready or not pipe.read():
                raise RuntimeError(f"the server did not start:\n{self.output('server')}")

    def join(self) -> str:
        """Start one more client; its name."""
        name = f"client-{self._next}"
        self._next += 1
        self.rejoin(name)
        return name

    def rejoin(self, name: str) -> None:
        """Start a client by name, with the key it had if it was there before."""
        self._known.discard(name)
        self.clients[name] = self._start(
            name,
            "join",
            self.address,
            f"--run-id={self.run_id}",
            f"--folder={self.folder / name}",
            f"--threads={self.threads}",
        )

    def kill(self, name: str) -> None:
        """End a client as a power cut would."""
        self._known.add(name)
        self.clients[name].send_signal(signal.SIGKILL)
        self.clients[name].wait()

    def kill_server(self) -> None:
        """End the server as a power cut would; `serve(address)` brings it back."""
        assert self.server is not None
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()

    def running(self) -> int:
        """How many clients are at work."""
        return sum(process.poll() is None for process in self.clients.values())

    def fallen(self) -> list[str]:
        """Clients that ended with an error since the last call, not killed by us."""
        ended = [n for n, p in self.clients.items() if p.poll() not in (None, 0)]
        new = [name for name in ended if name not in self._known]
        self._known.update(new)
        return new

    def output(self, name: str) -> str:
        """The last lines that a process printed."""
        lines = (self.folder / name / "output.txt").read_text(errors="replace").splitlines()
        return "\n".join(lines[-15:])

    def stop(self) -> None:
        processes = [*self.clients.values(), *([self.server] if self.server else [])]
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            try:
                process.wait(STOP_TIME)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait(self, seconds: float | None = None) -> None:
        """Until a process ends, but no longer than this."""
        self._ended.wait(seconds)
        self._ended.clear()

    def _start(
        self, name: str, *words: str, hand_on: tuple[int, ...] = ()
    ) -> subprocess.Popen[bytes]:
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        threads = {"OMP_NUM_THREADS": str(self.threads), "NUMBA_NUM_THREADS": str(self.threads)}
        with (home / "output.txt").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "folkmoot", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **threads},
                # Ctrl-C in the terminal is ours to hand on.
                start_new_session=True,
                pass_fds=hand_on,
            )
        threading.Thread(target=self._await_end, args=(process,), daemon=True).start()
        return process

    def _await_end(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._ended.set()
