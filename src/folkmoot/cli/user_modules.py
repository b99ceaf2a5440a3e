"""Code of the user's own that a command runs: modules of the working folder count."""

import importlib
import sys
from types import ModuleType


def import_module(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"cannot import {name!r}: {error}") from None
