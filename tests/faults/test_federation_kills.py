"""kill -9 of the coordinator at every step of its journal, and of a participant at every message.

Each time the federation goes on, and ends with the bits of a run that nobody disturbed.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from faults.federation_processes import (
    FOLDER,
    ROUNDS,
    Learner,
    config,
    coordinate,
    participate,
    settings,
    start,
)
from folkmoot.exchange.bucket import Bucket
from folkmoot.federated.coordinator.config import BucketConfig
from folkmoot.federated.coordinator.server import serving
from folkmoot.federated.names import CARRIED
from folkmoot.federated.participant.loop import take_part
from folkmoot.host.journal import Journal
from support.servers import S3Server

PARTS = 3


@pytest.fixture(params=["folder", "carried", "s3"])
def bucket(request: pytest.FixtureRequest) -> BucketConfig:
    """A folder that all see, weights that the coordinator carries, signed URLs: the same bits."""
    if request.param == "folder":
        return FOLDER
    if request.param == "carried":
        return BucketConfig(url=CARRIED)
    server: S3Server = request.getfixturevalue("s3_server")
    return BucketConfig(url=server.new_bucket(), options=server.options, presign=True)


@pytest.fixture
async def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("undisturbed")
    _keep_keys(folder)
    async with serving(config(folder, 0, PARTS)) as server:
        parts = [settings(folder, server.port, n) for n in range(PARTS)]
        await asyncio.gather(*(take_part(Learner(n), s) for n, s in enumerate(parts)))
    return _final(folder)


def _keep_keys(folder: Path) -> None:
    """The same identities in every run: their order is the order of summation."""
    for number in range(PARTS):
        (folder / f"key{number}").write_text(f"{number + 1:064x}\n")


def _final(folder: Path, bucket: BucketConfig = FOLDER) -> bytes:
    if bucket.presign:
        return bytes(Bucket(bucket.url, bucket.options).get(f"{ROUNDS}/global", 1 << 20))
    return (folder / f"state/bucket/{ROUNDS}/global").read_bytes()


async def _others(
    folder: Path, port: int, numbers: range, meanwhile: Callable[[], Awaitable[None]]
) -> None:
    """Participants in this process take part while `meanwhile` does its harm."""
    async with asyncio.TaskGroup() as tasks:
        for number in numbers:
            tasks.create_task(take_part(Learner(number), settings(folder, port, number)))
        tasks.create_task(meanwhile())


async def test_the_coordinator_may_be_killed_at_every_step_of_its_journal(
    tmp_path: Path, free_port: int, undisturbed: bytes, bucket: BucketConfig
) -> None:
    _keep_keys(tmp_path)
    deaths = 0

    async def kill_it() -> None:
        """Each life keeps at most one more record, and dies as it begins, or around that."""
        nonlocal deaths
        while True:
            for death in ("beginning", "before", "torn", "after"):
                process = start(coordinate, tmp_path, free_port, PARTS, bucket, death)
                await asyncio.to_thread(process.join)
                if process.exitcode == 0:
                    return
                assert process.exitcode == -signal.SIGKILL
                deaths += 1

    await _others(tmp_path, free_port, range(PARTS), kill_it)
    assert _final(tmp_path, bucket) == undisturbed
    # A join of each; every round a global model, and an update of each: those that come together
    # are one record. The last life dies only as it begins.
    records, rest = divmod(deaths, 4)
    assert rest == 1
    assert PARTS + ROUNDS * 2 <= records <= PARTS + ROUNDS * (PARTS + 1)
    journal = Journal(tmp_path / "state/journal")
    journal.close()
    assert journal.epoch == deaths + 2, "every life had an epoch of its own"


async def test_a_participant_may_be_killed_at_every_message(
    tmp_path: Path, undisturbed: bytes, bucket: BucketConfig
) -> None:
    _keep_keys(tmp_path)
    methods = ("Rendezvous", "Heartbeat", "StartTrainingRound", "EndTrainingRound")
    deaths = [(m, p) for _ in range(2) for m in methods for p in ("before", "after")]

    async with serving(config(tmp_path, 0, PARTS, bucket)) as server:
        died = 0

        async def kill_it() -> None:
            nonlocal died
            for method, point in [*deaths, ("", "")]:
                process = start(participate, tmp_path, server.port, 0, method, point)
                await asyncio.to_thread(process.join)
                died += process.exitcode == -signal.SIGKILL

        await _others(tmp_path, server.port, range(1, PARTS), kill_it)
        assert died == len(deaths)
    assert _final(tmp_path, bucket) == undisturbed
