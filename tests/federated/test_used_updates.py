"""An update that became part of a model leaves the bucket; its file serves its sender again."""

import fcntl
import os

import numpy as np
import pytest

from folkmoot.core.federation.state import Delivery
from folkmoot.exchange.bucket import Bucket, Missing, TooLarge
from folkmoot.federated.coordinator.bucket import CoordinatorBucket
from folkmoot.federated.model_file.reader import ModelFile, digest_of
from folkmoot.federated.participant.bucket import (
    MAP_FROM,
    SPARE,
    ParticipantBucket,
    WeightsUnavailable,
)
from support.models import publish_global, save_model

ANNAS = Delivery("anna", 3, "d", 1)


@pytest.fixture
def bucket(tmp_path):
    return Bucket(str(tmp_path / "bucket"), {})


@pytest.fixture
def store(bucket, tmp_path):
    return CoordinatorBucket(bucket, tmp_path / "state", 1 << 30)


#: Weights of a model that is mapped, not copied.
MANY = MAP_FROM // 4 + 1


def values(count, seed):
    return {"w": np.random.default_rng(seed).standard_normal(count, np.float32)}


def test_a_used_update_is_no_longer_an_object_of_the_bucket(bucket, store):
    ParticipantBucket(bucket).write_update(3, "anna", values(10, 1))
    store.consume([ANNAS])
    store.consume([ANNAS])  # again, as after a crash
    assert bucket.list("3") == []
    assert not (bucket.folder / "3/anna").exists()


@pytest.mark.parametrize("count", [1000, 999, 1001, 1, 200_000])
def test_a_recycled_file_holds_the_new_update_and_nothing_of_the_old(bucket, store, count):
    weights = ParticipantBucket(bucket)
    weights.write_update(3, "anna", values(1000, 1))
    inode = (bucket.folder / "3/anna").stat().st_ino
    store.consume([ANNAS])
    digest = weights.write_update(4, "anna", values(count, 2))
    path = bucket.folder / "4/anna"
    assert path.stat().st_ino == inode
    assert digest_of(path) == digest.hex()
    with ModelFile(path) as model:
        assert np.array_equal(model.arrays()["w"], values(count, 2)["w"])


def test_nobody_writes_over_the_file_of_another(bucket, store):
    weights = ParticipantBucket(bucket)
    weights.write_update(3, "anna", values(10, 1))
    inode = (bucket.folder / "3/anna").stat().st_ino
    store.consume([ANNAS])
    weights.write_update(4, "bert", values(10, 2))
    assert (bucket.folder / "4/bert").stat().st_ino != inode


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_an_update_that_others_may_write_to_is_copied_before_it_is_judged(bucket, store, mode):
    weights = ParticipantBucket(bucket)
    digest = weights.write_update(3, "anna", values(1000, 1)).hex()
    shared = bucket.folder / "3/anna"
    shared.chmod(mode)
    with shared.open("r+b") as held_open:
        taken = store.take(ANNAS, 1 << 20)
        held_open.seek(500)
        held_open.write(b"altered after it was checked")
    assert digest_of(shared) != digest
    assert digest_of(taken) == digest


def test_an_update_that_only_we_can_write_to_is_not_copied(bucket, store):
    ParticipantBucket(bucket).write_update(3, "anna", values(1000, 1))
    assert store.take(ANNAS, 1 << 20).samefile(bucket.folder / "3/anna")


@pytest.mark.parametrize("mode", [0o644, 0o664])
def test_an_update_that_is_too_large_is_not_taken(bucket, store, mode):
    ParticipantBucket(bucket).write_update(3, "anna", values(1000, 1))
    (bucket.folder / "3/anna").chmod(mode)
    with pytest.raises(TooLarge):
        store.take(ANNAS, 4000)


def test_a_link_in_place_of_an_update_is_no_object(bucket, store, tmp_path):
    secret = tmp_path / "secret"
    save_model(secret, values(10, 1))
    (bucket.folder / "3").mkdir()
    (bucket.folder / "3/anna").symlink_to(secret)
    with pytest.raises(Missing):
        store.take(ANNAS, 1 << 20)


def write_global(store, round_, seed):
    return publish_global(store, round_, values(MANY, seed))


def test_a_pruned_global_model_serves_the_next_one_and_leaves_nothing_of_itself(bucket, store):
    write_global(store, 0, 1)
    inode = (bucket.folder / "0/global").stat().st_ino
    assert store.prune(1) == 1
    digest = write_global(store, 3, 2)
    path = bucket.folder / "3/global"
    assert path.stat().st_ino == inode
    assert digest_of(path) == digest
    read = ParticipantBucket(bucket).read_global(3, bytes.fromhex(digest))
    assert np.array_equal(read["w"], values(MANY, 2)["w"])


def test_weights_that_a_participant_holds_do_not_change_when_their_round_is_pruned(bucket, store):
    digest = write_global(store, 0, 1)
    inode = (bucket.folder / "0/global").stat().st_ino
    held = ParticipantBucket(bucket).read_global(0, bytes.fromhex(digest))["w"]
    store.prune(1)
    write_global(store, 3, 2)
    assert np.array_equal(held, values(MANY, 1)["w"])
    assert (bucket.folder / "3/global").stat().st_ino != inode
    assert sorted(os.listdir(bucket.folder / "3")) == ["global"]


def test_weights_that_a_participant_let_go_of_make_room_for_the_next(bucket, store):
    digest = write_global(store, 0, 1)
    inode = (bucket.folder / "0/global").stat().st_ino
    ParticipantBucket(bucket).read_global(0, bytes.fromhex(digest))
    store.prune(1)
    write_global(store, 3, 2)
    assert (bucket.folder / "3/global").stat().st_ino == inode


def test_a_global_model_that_a_stranger_keeps_locked_is_read_all_the_same(bucket, store):
    digest = write_global(store, 0, 1)
    path = bucket.folder / "0/global"
    with path.open("rb") as stranger:
        fcntl.flock(stranger, fcntl.LOCK_EX)
        held = ParticipantBucket(bucket).read_global(0, bytes.fromhex(digest))["w"]
    path.write_bytes(b"something else")
    assert np.array_equal(held, values(MANY, 1)["w"])


@pytest.mark.parametrize("body", [b"", b"cut off"])
def test_a_global_model_that_is_not_the_announced_one_is_not_used(bucket, store, body):
    digest = write_global(store, 0, 1)
    (bucket.folder / "0/global").write_bytes(body)
    with pytest.raises(WeightsUnavailable):
        ParticipantBucket(bucket).read_global(0, bytes.fromhex(digest))


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_planted_link_is_never_written_through(bucket, store, tmp_path, link):
    ours = tmp_path / "journal"
    ours.write_bytes(b"must stay")
    (bucket.folder / SPARE).mkdir()
    link(ours, bucket.folder / SPARE / "global")
    digest = write_global(store, 3, 2)
    assert ours.read_bytes() == b"must stay"
    assert digest_of(bucket.folder / "3/global") == digest
    assert not (bucket.folder / "3/global").is_symlink()


def test_private_copies_of_all_rounds_that_are_over_go(bucket, store):
    for round_ in (1, 2, 3):
        ParticipantBucket(bucket).write_update(round_, "anna", values(10, round_))
        store.take(Delivery("anna", round_, "d", 1), 1 << 20)
    store.forget_rounds(2)
    assert [store.taken(Delivery("anna", r, "d", 1)).exists() for r in (1, 2, 3)] == [
        False,
        False,
        True,
    ]
