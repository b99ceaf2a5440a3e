"""A run, or a federation, as a job: its coordinator and its members are roles.

The job's master starts them all, and again whoever dies: a coordinator goes on from its journal at
the same address, a client joins once more with the key it had. Here a member is killed on the way,
and a run's coordinator, too; the model is learnt all the same.

    python examples/job_members.py                        # a run of three clients, on processes
    python examples/job_members.py --federation           # a federation of three participants
    python examples/job_members.py --ray-address auto     # either of them on a Ray cluster
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from job_watch import add_where, run_and_show

import folkmoot
from folkmoot.core.federation import Rules
from folkmoot.core.job import JobSpec
from folkmoot.federated import Settings, take_part
from folkmoot.federated.coordinator.config import BucketConfig, Federation, ServerConfig, rooted
from folkmoot.federated.coordinator.server import serving
from folkmoot.runs.join import join_run
from folkmoot.runs.serve import serve_run
from folkmoot.unified.api import JobBuilder, Worker, rpc

MEMBERS = 3
RUN = """
run_id = "squares"
[config]
total_steps = {rounds}
min_clients = 2
init_min_clients = 3
global_batch_size_start = 24
rounds_per_epoch = 10
delay = 0
warmup_time = 60
max_round_train_time = 60
cooldown_time = 60
[model]
max_seq_len = 32
checkpoint = "{folder}/checkpoints"
[model.architecture]
type = "gpt"
vocab_size = 256
layers = 1
heads = 2
width = 32
context = 32
[model.data]
type = "text"
paths = ["{folder}/corpus.txt"]
[model.method]
type = "dense"
"""


class Member(Worker):
    """Runs a coroutine until it is done, or the job is stopped."""

    def __init__(self, folder: str, rounds: int, dies_at: int = 0) -> None:
        self.folder, self.rounds, self.dies_at = Path(folder), rounds, dies_at
        self.seen = 0

    def until_stopped(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def run() -> Any:
            task = asyncio.ensure_future(work)
            loop = asyncio.get_running_loop()
            self.cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            if self.stopping:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                return await task

        return asyncio.run(run())

    def stop(self) -> None:
        super().stop()
        if hasattr(self, "cancel"):
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self.cancel()

    def perhaps_die(self) -> None:
        """Once, when a process has seen so much; 0 is never."""
        self.seen += 1
        died = self.folder / f"{self.name}.died"
        if self.seen == self.dies_at and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Coordinator(Member):
    """Holds the run or the federation for as long as the job lasts, always at one address."""

    calls_at_once = MEMBERS

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.at: Future[str] = Future()
        self.known = self.folder / "address"

    @rpc
    def address(self) -> str:
        return self.at.result()

    def start(self) -> None:
        self.until_stopped(self.hold())

    async def hold(self) -> None:
        listen_at = self.known.read_text() if self.known.exists() else f"{self.host}:0"
        async with self.serve(listen_at) as server:
            self.known.write_text(server.address)
            self.at.set_result(server.address)
            await asyncio.Event().wait()

    def serve(self, listen_at: str) -> AbstractAsyncContextManager[Any]:
        run = folkmoot.decode_run(RUN.format(rounds=self.rounds, folder=self.folder))
        told = lambda effect: self.perhaps_die()  # noqa: E731 - a callback of one call
        return serve_run(run, self.folder / "server", listen_at=listen_at, tell=told)


class Client(Member):
    """One client of the run: what `folkmoot join` does."""

    def start(self) -> None:
        self.until_stopped(self.take_part())

    async def take_part(self) -> None:
        address = await self.group("coordinator", patience=60.0).call_rank0(Coordinator.address)
        home = self.folder / self.name
        await join_run(address, "squares", home, trust=["all"], tell=self.heard)

    def heard(self, record: Any) -> None:
        if type(record).__name__ == "ShareTrained":
            self.progress(shares=self.seen)
            if self.rank == 0:
                self.perhaps_die()


class Federator(Coordinator):
    def serve(self, listen_at: str) -> AbstractAsyncContextManager[Any]:
        host, _, port = listen_at.rpartition(":")
        config = Federation(
            run_id="digits",
            rounds=Rules(rounds=self.rounds, epochs=2, min_participants=MEMBERS),
            server=ServerConfig(host=host, port=int(port), state="federation"),
            bucket=BucketConfig(keep_rounds=0),
        )
        return serving(rooted(config, self.folder))


class Participant(Member):
    """One participant, with a shard of handwritten digits (`digits.py`)."""

    def start(self) -> float:
        return self.until_stopped(self.take_part()) or 0.0

    async def take_part(self) -> float:
        from digits import Digits, accuracy, data

        member = self

        class Mortal(Digits):
            def train_round(self, weights: Any, epochs: int, epoch_base: int) -> tuple:
                if member.rank == 0:
                    member.perhaps_die()
                member.score = accuracy(weights, data()[1])
                member.progress(round=epoch_base // epochs, accuracy=round(member.score, 3))
                return super().train_round(weights, epochs, epoch_base)

        self.score = 0.0
        address = await self.group("coordinator", patience=60.0).call_rank0(Federator.address)
        key = str(self.folder / f"{self.name}.key")
        settings = Settings(address=address, run_id="digits", identity=key, longest_pause=1.0)
        await take_part(Mortal(self.rank), settings)
        print(f"the federation's model knows {self.score:.0%} of unseen digits", flush=True)
        return self.score


def make_job(folder: Path, rounds: int, federation: bool = False, deaths: bool = True) -> JobSpec:
    keeper, member = ("Federator", "Participant") if federation else ("Coordinator", "Client")
    where = {"folder": str(folder), "rounds": rounds}
    job = JobBuilder("members").global_env(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    coordinator = job.role("coordinator").run(f"job_members:{keeper}").not_driver()
    coordinator.resource(cpu=0.1).config(where, dies_at=60 if deaths else 0)
    members = job.role("member").run(f"job_members:{member}").total(MEMBERS)
    members.resource(cpu=0.1).config(where, dies_at=4 if deaths else 0).depends_on("coordinator")
    return job.build()


def write_corpus(folder: Path) -> None:
    lines = (f"{n} times {n} is {n * n}; " for n in range(4000))
    (folder / "corpus.txt").write_text("".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--federation", action="store_true", help="instead of a run")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--nobody-dies", action="store_true")
    add_where(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder)
        job = make_job(folder, options.rounds, options.federation, not options.nobody_dies)
        outcome = run_and_show(job, folder / "job", "member-1", options.ray_address)
        if (folder / "checkpoints").exists():
            trained = folkmoot.load_checkpoint(folder / "checkpoints")
            size = sum(p.numel() for p in trained.model.parameters())
            print(f"the run left a checkpoint of {size:,} parameters")
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
