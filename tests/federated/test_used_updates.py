"""An update that became part of a model leaves the bucket; its file serves its sender again."""

import numpy as np
import pytest

from folkmoot.exchange.bucket import Bucket
from folkmoot.federated.arrays import ModelFile
from folkmoot.federated.store import RoundStore, digest_of
from folkmoot.federated.weights import Weights


@pytest.fixture
def bucket(tmp_path):
    return Bucket(str(tmp_path / "bucket"), {})


@pytest.fixture
def store(bucket, tmp_path):
    return RoundStore(bucket, tmp_path / "state", 1 << 30)


def values(count, seed):
    return {"w": np.random.default_rng(seed).standard_normal(count, np.float32)}


def test_a_used_update_is_no_longer_an_object_of_the_bucket(bucket, store):
    Weights(bucket).write_update(3, "anna", values(10, 1))
    store.consume(["3/anna"])
    store.consume(["3/anna"])  # again, as after a crash
    assert bucket.list("3") == []
    assert not (bucket.folder / "3/anna").exists()


@pytest.mark.parametrize("count", [1000, 999, 1001, 1, 200_000])
def test_a_recycled_file_holds_the_new_update_and_nothing_of_the_old(bucket, store, count):
    weights = Weights(bucket)
    weights.write_update(3, "anna", values(1000, 1))
    inode = (bucket.folder / "3/anna").stat().st_ino
    store.consume(["3/anna"])
    digest = weights.write_update(4, "anna", values(count, 2))
    path = bucket.folder / "4/anna"
    assert path.stat().st_ino == inode
    assert digest_of(path) == digest.hex()
    with ModelFile(path) as model:
        assert np.array_equal(model.arrays()["w"], values(count, 2)["w"])


def test_nobody_writes_over_the_file_of_another(bucket, store):
    weights = Weights(bucket)
    weights.write_update(3, "anna", values(10, 1))
    inode = (bucket.folder / "3/anna").stat().st_ino
    store.consume(["3/anna"])
    weights.write_update(4, "bert", values(10, 2))
    assert (bucket.folder / "4/bert").stat().st_ino != inode
