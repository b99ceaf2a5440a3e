"""What the fork server imports beforehand: the large libraries that the roles' modules begin with.

Only libraries, never the user's modules: those may read the role's environment as they are
imported, and it differs from role to role.
"""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from folkmoot.core.job import JobSpec

#: Libraries that take long to import and may be forked.
LARGE = frozenset(
    {"gymnasium", "numpy", "pandas", "pyarrow", "safetensors", "scipy", "sklearn", "tokenizers"}
    | {"torch", "transformers"}
)
#: What torch imports when an optimizer is made, which takes seconds: better once than in every
#: process, and after every death.
WITH_OPTIMIZER = "torch._dynamo"
#: Rooms of our own that learn: they import torch.
WITH_TORCH = frozenset({"folkmoot.client", "folkmoot.learning", "folkmoot.runs"})


def preload(spec: JobSpec) -> tuple[str, ...]:
    sources = [
        _source(entry)
        for role in spec.roles.values()
        for entry in (role.entry, role.sub_master)
        if entry
    ]
    names = {name for source in sources for name in _imports(source)}
    more = {WITH_OPTIMIZER} if any("optim" in source for source in sources) else set()
    if names & WITH_TORCH or any(role.elastic for role in spec.roles.values()):
        names.add("torch")  # the backend checks workers with it, whatever their code imports
    return tuple(sorted((names & LARGE) | (more if "torch" in names else set())))


def _source(entry: str) -> str:
    """The text of the module or script, without running it; "" if it cannot be found."""
    module, colon, _ = entry.partition(":")
    try:
        if colon:
            # Importing a parent package is what find_spec does; a plain path does as well.
            found = _on_path(module) or importlib.util.find_spec(module)
            path = found if isinstance(found, Path) else Path(found.origin or "") if found else None
        else:
            path = next((Path(word) for word in entry.split() if word.endswith(".py")), None)
        return path.read_text() if path and path.is_file() else ""
    except (OSError, ImportError, ValueError, UnicodeDecodeError):
        return ""


def _on_path(module: str) -> Path | None:
    inside = Path(*module.split("."))
    folders = [Path(entry or ".") for entry in sys.path]
    tried = (f / p for f in folders for p in (inside.with_suffix(".py"), inside / "__init__.py"))
    return next((path for path in tried if path.is_file()), None)


def _imports(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (_library(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield _library(node.module)


def _library(module: str) -> str:
    """The package, of ours with the room."""
    first, *rest = module.split(".")
    return ".".join([first, *rest[:1]]) if first == "folkmoot" else first
