"""Who shares the coordinator's machine knows its file by a stamp, a changed one by its digest."""

import os

import numpy as np
import pytest

from folkmoot.exchange.bucket import Bucket
from folkmoot.federated.coordinator.bucket import CoordinatorBucket
from folkmoot.federated.model_file.file_stat import stamp
from folkmoot.federated.participant.bucket import ParticipantBucket, WeightsUnavailable
from support.models import publish_global

VALUES = {"w": np.arange(100_000, dtype=np.float32)}
WRONG = bytes(32)


@pytest.fixture
def bucket(tmp_path):
    return Bucket(str(tmp_path / "bucket"), {})


@pytest.fixture
def published(bucket, tmp_path):
    """A published global model: its path, digest and stamp."""
    store = CoordinatorBucket(bucket, tmp_path / "state", 1 << 30)
    digest = bytes.fromhex(publish_global(store, 1, VALUES))
    assert store.global_stamp(0) == b""
    return bucket.folder / "1/global", digest, store.global_stamp(1)


def read(bucket, digest, stamp):
    return ParticipantBucket(bucket).read_global(1, digest, stamp)["w"]


def test_the_very_file_that_was_published_is_known_by_its_mark(bucket, published):
    _, _, stamp = published
    assert stamp
    # The digest is wrong, and nobody asks for it.
    assert np.array_equal(read(bucket, WRONG, stamp), VALUES["w"])


@pytest.mark.parametrize("given", [b"", b"x" * 32])
def test_without_the_right_mark_the_digest_decides(bucket, published, given):
    _, digest, _ = published
    assert np.array_equal(read(bucket, digest, given), VALUES["w"])
    with pytest.raises(WeightsUnavailable, match="not the model"):
        read(bucket, WRONG, given)


def test_a_file_changed_in_place_is_refused_even_with_its_times_set_back(bucket, published):
    path, digest, stamp = published
    before = path.stat()
    clock = path.with_name("clock")
    while not clock.exists() or clock.stat().st_ctime_ns <= before.st_ctime_ns:
        clock.touch()  # older systems tell times only to a few milliseconds
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"changed")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(WeightsUnavailable, match="not the model"):
        read(bucket, digest, stamp)


def test_another_file_in_its_place_is_hashed(bucket, published):
    path, digest, stamp = published
    body = path.read_bytes()
    path.unlink()
    path.write_bytes(body)
    assert np.array_equal(read(bucket, digest, stamp), VALUES["w"])
    with pytest.raises(WeightsUnavailable, match="not the model"):
        read(bucket, WRONG, stamp)


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_to_has_no_mark(published, mode):
    path, _, _ = published
    path.chmod(mode)
    assert stamp(path.stat()) == b""
