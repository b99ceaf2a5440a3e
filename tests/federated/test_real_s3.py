"""A whole federation whose weights travel through a real S3 server."""

import asyncio
from pathlib import Path

import grpc
import numpy as np
import pytest

from folkmoot.federated import Participant, Settings, take_part
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.participant.bucket import WeightsUnavailable
from folkmoot.federated.participant.presigned import PresignedBucket
from support.federation import AGREES, federation_config, refusal, running_federation, with_bucket
from support.servers import S3Server


class Averages(Participant):
    def __init__(self, value: float, samples: int) -> None:
        self.value, self.samples = np.float32(value), samples

    def init_weights(self) -> dict[str, np.ndarray]:
        return {"a": np.full((300, 7), self.value), "b": np.array([self.samples])}

    def train_round(self, weights: dict, epochs: int, epoch_base: int) -> tuple:
        return {"a": weights["a"] + self.value, "b": np.array(weights["b"])}, self.samples, {}


@pytest.fixture(params=["s3_server", "s3_over_tls"])
def s3(request: pytest.FixtureRequest) -> S3Server:
    server: S3Server = request.getfixturevalue(request.param)
    return server


async def test_a_federation_over_s3(tmp_path: Path, s3: S3Server) -> None:
    config = federation_config(tmp_path, {"rounds": 4, "min_participants": 2})
    url, options = s3.new_bucket(), s3.options
    config = with_bucket(config, url=url, options=options, keep_rounds=2)
    async with running_federation(tmp_path, config) as w:
        settings = Settings(
            address=w.server.address, run_id="test", policy=AGREES, bucket_options=s3.options
        )
        parts = [Averages(1.0, 1), Averages(5.0, 3)]
        await asyncio.gather(*(take_part(part, settings) for part in parts))
        await w.server.finished()
        body = w.coordinator.store.bucket.get("4/global", 100_000)
        values = np.frombuffer(body, np.float32, count=2100, offset=len(body) - 8400)
        # The first weights are the plain mean, 3; each round adds (1·1 + 5·3) / 4.
        np.testing.assert_array_equal(values, np.full(2100, 15.0, np.float32))


async def test_missing_and_damaged_objects_on_s3_are_refused(tmp_path: Path, s3: S3Server) -> None:
    config = federation_config(tmp_path, {"rounds": 1})
    config = with_bucket(config, url=s3.new_bucket(), options=s3.options)
    async with running_federation(tmp_path, with_bucket(config, keep_updates=True)) as w:
        (a,) = await w.join("a")
        code, _ = await refusal(a.end(bytes(32)))
        assert code == grpc.StatusCode.FAILED_PRECONDITION
        digest = a.upload([1.0, 2.0])
        key = f"0/{a.participant_id}"
        w.bucket.put(key, bytes(w.bucket.get(key, 1000))[:-3])
        code, _ = await refusal(a.end(digest))
        assert code == grpc.StatusCode.DATA_LOSS
        await a.deliver([1.0, 2.0])
        assert list(await w.global_of(1)) == [1.0, 2.0]
        assert {e.key for e in w.bucket.list()} == {key, "1/global"}


async def test_participants_without_any_right_use_signed_urls(
    tmp_path: Path, s3_server: S3Server
) -> None:
    config = federation_config(tmp_path, {"rounds": 3, "min_participants": 2})
    url = s3_server.new_bucket()
    config = with_bucket(config, url=url, options=s3_server.options, presign=True)
    async with running_federation(tmp_path, config) as w:
        settings = Settings(address=w.server.address, run_id="test", policy=AGREES)
        parts = [Averages(1.0, 1), Averages(5.0, 3)]
        await asyncio.gather(*(take_part(part, settings) for part in parts))
        await w.server.finished()
        with ModelFile(w.coordinator.store.global_path(3)) as model:
            np.testing.assert_array_equal(model.arrays()["a"], np.full((300, 7), 11.0))


async def test_a_signed_url_writes_one_object_only(tmp_path: Path, s3_server: S3Server) -> None:
    config = federation_config(tmp_path, {"rounds": 1})
    url = s3_server.new_bucket()
    config = with_bucket(config, url=url, options=s3_server.options, presign=True)
    async with running_federation(tmp_path, config) as w:
        (a,) = await w.join("a")
        started = await a.start()
        arrays = {"weights": np.ones(2, np.float32)}
        elsewhere = started.put_url.replace(a.participant_id, "somebody-else")
        with pytest.raises(WeightsUnavailable, match="403"):
            PresignedBucket("", elsewhere).write_update(0, "", arrays)
        digest = PresignedBucket("", started.put_url).write_update(0, "", arrays)
        await a.end(digest)
        assert list(await w.global_of(1)) == [1.0, 1.0]
