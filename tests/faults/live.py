"""A run of real processes to hurt: what its logs tell, waited for, and whether all models agree."""

import signal
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faults.file_watch import FileWatch
from folkmoot.host.event_log import LogReader
from folkmoot.observe.logs import open_log
from folkmoot.runs.local_processes import LocalRun

CONFIG = """
run_id = "hurt"
[config]
total_steps = {steps}
rounds_per_epoch = {rounds}
min_clients = 2
init_min_clients = {clients}
global_batch_size_start = 8
warmup_time = 60
max_round_train_time = {train_time}
round_witness_time = 2
cooldown_time = 20
health_check_timeout = 8
[model]
max_seq_len = 32
checkpoint = "{folder}/checkpoints"
[model.architecture]
type = "gpt"
vocab_size = 257
layers = 1
heads = 2
width = 32
context = 32
[model.data]
type = "text"
paths = ["{text}"]
[model.method]
type = "distro"
"""
PATIENCE = 280.0


class Live(LocalRun):
    """A local run and all that its logs told so far."""

    def __init__(self, file: Path, folder: Path) -> None:
        self._watch = FileWatch()
        super().__init__(file, "hurt", folder, on_end=self._watch.wake)
        self._logs: dict[str, LogReader] = {}
        self.told: dict[str, list[Any]] = {}

    def read(self) -> None:
        for name in ("server", *self.clients):
            if name not in self._logs:
                self._watch.add(self.folder / name)
                kind = "server" if name == "server" else "client"
                self._logs[name] = open_log(self.folder / name / "events.jsonl", kind)
            told = self.told.setdefault(name, [])
            told.extend(entry.record for entry in self._logs[name].new())

    def all(self, name: str, kind: str) -> list[Any]:
        return [record for record in self.told.get(name, []) if type(record).__name__ == kind]

    def until(self, done: Callable[[], Any], what: str) -> Any:
        """Wait for the logs to tell something."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self.read()
            if result := done():
                return result
            assert not (failed := self.failed()), self.output(failed[0])
            assert time.monotonic() < deadline, f"waited for {what} in vain:\n{self.story()}"
            self._watch.wait(deadline - time.monotonic())

    def story(self) -> str:
        return "\n".join(f"{n}: {e}"[:200] for n, told in self.told.items() for e in told[-8:])

    def was_in(self, phase: str) -> bool:
        return any(change.after == phase for change in self.all("server", "StateChanged"))

    @property
    def phase(self) -> str:
        changes = self.all("server", "StateChanged")
        return changes[-1].after if changes else "WaitingForMembers"

    def step(self) -> int:
        return max((e.step for e in self.all("server", "RoundStarted")), default=-1)

    def finish(self) -> None:
        """Wait for the end; every model was the same in every round."""
        self.until(lambda: self.phase == "Finished" and not self.running(), "the end")
        hashes: dict[tuple[int, int], set[str]] = {}
        for name in self.clients:
            for event in self.all(name, "RoundLearnt"):
                hashes.setdefault((event.epoch, event.height), set()).add(event.hash)
        assert hashes
        assert {len(found) for found in hashes.values()} == {1}, hashes

    def pause(self, name: str) -> None:
        self.clients[name].send_signal(signal.SIGSTOP)

    def wake(self, name: str) -> None:
        self.clients[name].send_signal(signal.SIGCONT)


def write_config(folder: Path, clients: int, **values: float) -> Path:
    file = folder / "run.toml"
    text = Path(sysconfig.get_path("stdlib")) / "ast.py"
    settings = {"steps": 30, "rounds": 10, "train_time": 4, **values}
    file.write_text(CONFIG.format(folder=folder, text=text, clients=clients, **settings))
    return file


@contextmanager
def live(folder: Path, clients: int = 3, solana: bool = False, **values: float) -> Iterator[Live]:
    """A run that `clients` have joined; `values` are those of `write_config`."""
    with Live(write_config(folder, clients, **values), folder) as run:
        if solana:
            run.keep_on_solana()
        else:
            run.serve()
        for _ in range(clients):
            run.join()
        try:
            yield run
        finally:
            for process in run.clients.values():
                if process.poll() is None:
                    process.send_signal(signal.SIGCONT)  # one that sleeps cannot be asked to end
