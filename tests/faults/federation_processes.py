"""A coordinator and participants as processes that kill themselves where a test says."""

import asyncio
import multiprocessing
import os
import signal
import sys
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from folkmoot.core.federation import Rules
from folkmoot.federated.coordinator.config import (
    BESIDE_JOURNAL,
    BucketConfig,
    Federation,
    ServerConfig,
    rooted,
)
from folkmoot.federated.coordinator.coordinator import Coordinator
from folkmoot.federated.coordinator.server import serving
from folkmoot.federated.participant.connection import Connection
from folkmoot.federated.participant.loop import Settings, take_part
from folkmoot.federated.participant.participant import Participant
from folkmoot.host.journal import Journal
from support.federation import AGREES
from support.servers import free_ports

RUN = "faults"
FOLDER = BucketConfig()
ROUNDS = 4
SIZE = 1000

#: Everything is imported once, in a process that forks the others: a restart takes milliseconds.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["faults.federation_processes"])


def start(target: Any, *arguments: Any) -> BaseProcess:
    # The forking process finds what it should import through its environment only.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        forkserver.ensure_running()
    process = processes.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# The coordinator.


class Mortal(Journal):
    """Kills its process as it begins; or at the first append: before, amid or right after it."""

    death = ""

    def begin(self, *records: bytes) -> None:
        if self.death == "beginning":
            die()
        super().begin(*records)

    def append(self, record: bytes) -> None:
        if self.death == "before":
            die()
        if self.death == "torn":
            os.pwrite(self._fd, self._frames.frame(record, self.size)[:-20], self.size)
            die()
        super().append(record)
        if self.death == "after":
            die()


def config(folder: Path, port: int, parts: int, bucket: BucketConfig = FOLDER) -> Federation:
    rules = Rules(rounds=ROUNDS, min_participants=parts, epochs=1, heartbeat_timeout=300.0)
    # A life of a coordinator tells where it carries weights: it may be elsewhere each time.
    server = ServerConfig(port=port, weights_port=free_ports(1)[0], state="state")
    made = Federation(run_id=RUN, rounds=rules, server=server, seed="ab" * 32, bucket=bucket)
    return rooted(made, folder, BESIDE_JOURNAL)


def coordinate(folder: Path, port: int, parts: int, bucket: BucketConfig, death: str) -> None:
    """Run a coordinator until it has finished, or dies as told."""
    mortal = type("Doomed", (Mortal,), {"death": death})

    def make(federation: Federation) -> Coordinator:
        return Coordinator(federation, journal=mortal)

    async def run() -> None:
        async with serving(config(folder, port, parts, bucket), make) as server:
            await server.finished()
            await server.farewell(10.0)

    asyncio.run(run())


# A participant.


class Learner(Participant):
    """Its result depends on the weights, its own numbers, and nothing else."""

    def __init__(self, number: int) -> None:
        self.own = np.random.default_rng(number).standard_normal(SIZE).astype(np.float32)
        self.samples = 3 + 7 * number

    def init_weights(self) -> np.ndarray:
        return self.own

    def train_round(self, weights: np.ndarray, epochs: int, epoch_base: int) -> tuple:
        return np.tanh(weights * np.float32(1.1) + self.own), self.samples, {}


class Doomed(Connection):
    """Kills its process at the first call of a method: before it is sent, or once answered."""

    method, point = "", ""

    def signed(self, method: str, request: Any) -> Any:
        if (method, self.point) == (self.method, "before"):
            die()
        return super().signed(method, request)

    def checked(self, method: str, request: Any, answer: Any) -> Any:
        if (method, self.point) == (self.method, "after"):
            die()
        return super().checked(method, request, answer)


def settings(folder: Path, port: int, number: int) -> Settings:
    return Settings(
        address=f"127.0.0.1:{port}",
        run_id=RUN,
        policy=AGREES,
        identity=str(folder / f"key{number}"),
        longest_pause=0.2,
    )


def participate(folder: Path, port: int, number: int, method: str, point: str) -> None:
    """Take part until the federation has finished, or die as told."""
    doomed = type("DoomedHere", (Doomed,), {"method": method, "point": point})
    asyncio.run(take_part(Learner(number), settings(folder, port, number), doomed))
