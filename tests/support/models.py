"""Models in files, for tests."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from folkmoot.federated.coordinator.bucket import CoordinatorBucket
from folkmoot.federated.model_file.layout import Array, layout_of
from folkmoot.federated.model_file.writer import ModelWriter


def save_model(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write `arrays` as a coordinator would."""
    with closing(ModelWriter(path, layout_of(arrays))) as writer:
        writer.write_all(arrays)
        writer.commit(durable=False)


def publish_global(store: CoordinatorBucket, round_: int, arrays: Mapping[str, Array]) -> str:
    """Let a coordinator's bucket have `arrays` as the round's model; its digest."""
    with closing(store.new_global(round_, layout_of(arrays))) as written:
        written.write_all(arrays)
        return store.publish_global(round_, written)
