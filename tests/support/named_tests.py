"""Tests and transcripts that are named elsewhere as what shows something: are they there?"""

import ast
from collections.abc import Iterable
from pathlib import Path


def missing(folder: Path, names: Iterable[str]) -> list[str]:
    """Those of `path::test`, or paths, that are not in the folder."""
    return [name for name in names if not _is_there(folder, *name.partition("::"))]


def _is_there(folder: Path, path: str, _: str, test: str) -> bool:
    if not path.endswith(".py"):
        return (folder / path).is_file()
    tree = ast.parse((folder / path).read_text())
    functions = (n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return test in {function.name for function in functions}
