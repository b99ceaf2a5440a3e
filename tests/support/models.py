"""Models in files, for tests."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from folkmoot.federated.model_file.layout import Array, layout_of
from folkmoot.federated.model_file.writer import ModelWriter


def save_model(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write `arrays` as a coordinator would."""
    with closing(ModelWriter(path, layout_of(arrays))) as writer:
        writer.write_all(arrays)
        writer.commit(durable=False)
