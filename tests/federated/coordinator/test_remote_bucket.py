"""What the coordinator takes out of a remote bucket is what was announced, hashed as it came."""

from pathlib import Path

import numpy as np
import pytest

from folkmoot.core.federation.state import Delivery
from folkmoot.exchange.bucket import Bucket
from folkmoot.federated.coordinator.bucket import CoordinatorBucket, NotAnnounced
from folkmoot.federated.model_file.reader import ModelFile, digest_of
from folkmoot.federated.participant.bucket import ParticipantBucket
from support.models import publish_global

#: More than one stretch of a download.
MANY = 100_000


@pytest.fixture
def store(tmp_path: Path) -> CoordinatorBucket:
    return CoordinatorBucket(Bucket("memory:"), tmp_path, 1 << 30)


def delivered(store: CoordinatorBucket, values: np.ndarray) -> Delivery:
    digest = ParticipantBucket(store.bucket).write_update(3, "anna", {"w": values})
    return Delivery("anna", 3, digest.hex(), 1)


def test_a_download_is_hashed_and_looked_through(store: CoordinatorBucket) -> None:
    delivery = delivered(store, np.ones(MANY, np.float32))
    assert not store.finite_layout(delivery)
    assert digest_of(store.take(delivery, 1 << 30)) == delivery.digest
    assert store.finite_layout(delivery)
    store.forget_rounds(3)
    assert not store.finite_layout(delivery)


@pytest.mark.parametrize("position", [0, MANY // 2, MANY - 1])
def test_a_value_that_is_not_finite_is_seen_as_it_comes(
    store: CoordinatorBucket, position: int
) -> None:
    values = np.ones(MANY, np.float32)
    values[position] = np.nan
    delivery = delivered(store, values)
    store.take(delivery, 1 << 30)
    assert not store.finite_layout(delivery)


def test_of_another_body_than_the_announced_nothing_stays(store: CoordinatorBucket) -> None:
    announced = delivered(store, np.ones(MANY, np.float32))
    delivered(store, np.zeros(MANY, np.float32))  # in its place
    with pytest.raises(NotAnnounced, match="is not what was announced"):
        store.take(announced, 1 << 30)
    assert not store.taken(announced).exists()
    assert not store.finite_layout(announced)


def test_what_is_used_up_is_written_over(store: CoordinatorBucket) -> None:
    """A file that is there already costs a fraction of a new one; nothing is left of it."""
    arrays = {"w": np.ones(MANY, np.float32)}
    publish_global(store, 3, arrays)
    model = store.global_path(3).stat().st_ino
    delivery = delivered(store, np.ones(MANY, np.float32))
    update = store.take(delivery, 1 << 30).stat().st_ino
    store.consume([delivery])
    store.forget_rounds(3)
    shorter = delivered(store, np.zeros(MANY // 2, np.float32))
    path = store.take(shorter, 1 << 30)
    assert (path.stat().st_ino, digest_of(path)) == (update, shorter.digest)
    digest = publish_global(store, 4, arrays)
    path = store.global_path(4)
    assert (path.stat().st_ino, digest_of(path)) == (model, digest)


def test_after_a_start_a_model_is_read_anew(tmp_path: Path, store: CoordinatorBucket) -> None:
    """Our copy of it was not synced: a power cut may have left anything there."""
    arrays = {"w": np.ones(MANY, np.float32)}
    digest = publish_global(store, 4, arrays)
    store.global_target(4).write_bytes(b"torn")
    again = CoordinatorBucket(store.bucket, tmp_path, 1 << 30)
    assert digest_of(again.global_path(4)) == digest
    with ModelFile(again.global_path(4)) as model:
        np.testing.assert_array_equal(model.arrays()["w"], arrays["w"])
