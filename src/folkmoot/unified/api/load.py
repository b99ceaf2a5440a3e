"""A job from where its owner keeps it: a TOML file, or a name in a Python module."""

import os
from pathlib import Path
from typing import Any

from folkmoot.core.config import decode
from folkmoot.core.job import JobSpec
from folkmoot.unified.api.builder import JobBuilder
from folkmoot.unified.api.check import checked
from folkmoot.unified.api.role import RoleBuilder
from folkmoot.unified.entry import OBJECT, find_object


def load_job(source: str | os.PathLike[str]) -> JobSpec:
    """The job of `job.toml`, or of `module:name` (a spec, a builder, or a function that gives one).

    A bad file is a `ConfigError` with all its problems and their lines; a bad builder is `BadJob`.
    """
    if isinstance(source, str) and OBJECT.fullmatch(source) and not Path(source).exists():
        return _from_module(source)
    path = Path(source)
    if path.suffix != ".toml" and not path.exists():
        raise ValueError(f"{source!r} is no job: give a file job.toml, or module:job in Python")
    return decode(path.read_text(), JobSpec, path.name)


def _from_module(name: str) -> JobSpec:
    found: Any = find_object(name)
    if callable(found) and not isinstance(found, JobBuilder | RoleBuilder):
        found = found()
    if isinstance(found, JobBuilder | RoleBuilder):
        return found.build()
    if isinstance(found, JobSpec):
        return checked(found)
    raise ValueError(f"{name} gives {type(found).__name__}: expected a JobSpec or a builder of one")
