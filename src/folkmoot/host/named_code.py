"""Code of the owner's own that a setting names, as `module:name`.

Modules of the working folder count.
"""

import importlib
import sys
from typing import Any


def load_code(name: str) -> Any:
    """What `module:name` names; ValueError says what is not there."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ValueError(f"{name!r} names no code: expected module:name")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ValueError(f"cannot import {module!r}: {error}") from None
    except AttributeError:
        raise ValueError(f"module {module!r} has no {attribute!r}") from None
