"""Code of the owner's own that a setting or a command names, as `module` or `module:name`.

Modules of the working folder count.
"""

import importlib
import sys
from types import ModuleType
from typing import Any


def import_module(name: str) -> ModuleType:
    """ValueError says why it cannot be imported."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"cannot import {name!r}: {error}") from None


def load_code(name: str) -> Any:
    """What `module:name` names; ValueError says what is not there."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ValueError(f"{name!r} names no code: expected module:name")
    try:
        return getattr(import_module(module), attribute)
    except AttributeError:
        raise ValueError(f"module {module!r} has no {attribute!r}") from None
