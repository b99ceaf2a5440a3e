"""A global model is in a remote bucket when it counts, and of one that never counts nothing is."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest

from folkmoot.exchange.bucket import Bucket, BucketError
from folkmoot.federated.coordinator.bucket import CoordinatorBucket
from folkmoot.federated.coordinator.sent_model import SentModel
from folkmoot.federated.model_file.hashing_writer import PIECE
from folkmoot.federated.model_file.layout import layout_of
from folkmoot.federated.model_file.reader import digest_of
from support.servers import S3Server

#: Several pieces, and a part of one.
MODEL = {"w": np.arange(5 * PIECE // 4 + 77, dtype=np.float32), "b": np.ones(3)}


@pytest.fixture
def no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store's own client writes fails a test."""

    def put(store: Any, key: str, *body: Any, **how: Any) -> Any:
        pytest.fail(f"{key} was put when it was whole")

    monkeypatch.setattr(obstore, "put", put)


def store_of(folder: Path, bucket: Bucket) -> CoordinatorBucket:
    return CoordinatorBucket(bucket, folder, 1 << 30)


def begun(store: CoordinatorBucket) -> SentModel:
    written = store.new_global(1, layout_of(MODEL))
    assert isinstance(written, SentModel)
    return written


@pytest.mark.usefixtures("no_client")
def test_a_model_goes_into_the_bucket_while_it_is_written(
    tmp_path: Path, s3_over_tls: S3Server
) -> None:
    store = store_of(tmp_path, Bucket(s3_over_tls.new_bucket(), s3_over_tls.options))
    with closing(begun(store)) as written:
        written.write_all(MODEL)
        digest = store.publish_global(1, written)
    found = tmp_path / "found"
    found.write_bytes(store.bucket.get("1/global", 1 << 30))
    assert digest_of(found) == digest == digest_of(store.global_path(1))


@pytest.mark.usefixtures("no_client")
@pytest.mark.parametrize("whole", [True, False])
def test_of_one_that_is_given_up_there_is_no_object(
    tmp_path: Path, s3_over_tls: S3Server, whole: bool
) -> None:
    store = store_of(tmp_path, Bucket(s3_over_tls.new_bucket(), s3_over_tls.options))
    with closing(begun(store)) as written:
        if whole:
            written.write_all(MODEL)
            written.digest()
        else:
            written.write("w", 0, MODEL["w"][: PIECE // 2])
    assert written._sent.result() is False
    assert store.bucket.list() == []


@pytest.mark.parametrize("kind", ["memory", "http"])
def test_what_cannot_be_sent_so_is_put_when_it_is_whole(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    bucket = Bucket("memory:")
    if kind == "http":
        server: S3Server = request.getfixturevalue("s3_server")
        bucket = Bucket(server.new_bucket(), server.options)
    store = store_of(tmp_path, bucket)
    with closing(begun(store)) as written:
        written.write_all(MODEL)
        store.publish_global(1, written)
    assert bytes(bucket.get("1/global", 1 << 30)) == store.global_path(1).read_bytes()


def test_a_bucket_that_takes_nothing_fails_the_model(tmp_path: Path, s3_over_tls: S3Server) -> None:
    wrong = {**s3_over_tls.options, "secret_access_key": "wrong"}
    store = store_of(tmp_path, Bucket(s3_over_tls.new_bucket(), wrong, patience=5))
    with closing(begun(store)) as written:
        written.write_all(MODEL)
        with pytest.raises(BucketError):
            store.publish_global(1, written)
