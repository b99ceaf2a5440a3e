"""A whole run on this machine: a server or a store, and clients, each a process of its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from folkmoot.host.processes import Processes

COMMAND = [sys.executable, "-m", "folkmoot"]


class LocalRun(Processes):
    """Starts a run's processes and stops every one of them, however the block ends."""

    def __init__(
        self,
        file: Path,
        run_id: str,
        folder: Path,
        threads: int = 1,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        limits = {"OMP_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": str(threads)}
        super().__init__(folder, limits, on_end)
        self.file, self.run_id, self.threads = file, run_id, threads
        self.address = self.store = ""
        self.keepers = ["server"]  # processes without which nobody can go on
        self.clients: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self, listen: str = "127.0.0.1:0") -> None:
        """Start the server and wait until it listens. After a kill, the same address again."""
        state = f"--state={self.folder / 'server'}"
        serve = [*COMMAND, "serve", str(self.file), f"--listen={listen}", state]
        self.address = self.start_ready("server", serve)

    def keep_in_store(self, store: str = "") -> None:
        """Put the run into the store at this url, or into one that is started here.

        The process that follows it and writes its log is called "server" too: it stands where one
        would.
        """
        if not store:
            self.store = store = self.start_ready("store", [*COMMAND, "store", "serve", "--port=0"])
            self.keepers = ["store", "server"]
        create = [*COMMAND, "create", str(self.file), f"--store={store}", "--follow"]
        create.append(f"--folder={self.folder / 'server'}")
        self.address = self.start_ready("server", create)

    def keep_on_solana(self) -> None:
        """Start a localnet and put the run on it; who follows it is called "server" here too."""
        serve = [*COMMAND, "solana", "localnet", "--port=0"]
        url = self.start_ready("localnet", serve)
        home = self.folder / "server"
        create = [*COMMAND, "solana", "create-run", str(self.file), f"--url={url}"]
        create += [f"--key={home / 'owner.key'}", f"--follow={home}"]
        self.address = self.start_ready("server", create)
        self.keepers = ["localnet", "server"]

    def join(self) -> str:
        """Start one more client; its name."""
        name = f"client-{len(self.clients) + 1}"
        self.rejoin(name)
        return name

    def rejoin(self, name: str) -> None:
        """Start a client by name, with the key it had if it was there before.

        Whoever starts the run here is its owner: it may use what its file names.
        """
        join = [*COMMAND, "join", self.address, f"--run-id={self.run_id}", "--trust=all"]
        self.start(name, [*join, f"--folder={self.folder / name}", f"--threads={self.threads}"])
        self.clients[name] = self[name]

    def running(self) -> int:
        """How many clients are at work."""
        return sum(process.poll() is None for process in self.clients.values())
