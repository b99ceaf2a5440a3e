"""A run as its owner writes it down."""

import os
from pathlib import Path

from folkmoot.core.coordinator import Run, decode_run
from folkmoot.host.files import read_text


def load_run(file: str | os.PathLike[str]) -> Run:
    """The run that a `run.toml` describes, or a `ConfigError` that lists all its problems."""
    path = Path(file)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}: `folkmoot init {path}` writes one")
    return decode_run(read_text(path), path.name)
