"""Every module imports only what its room may touch. The table is the one of the design.

Imports are read from the source, those inside functions too, so a lazy import cannot slip by.
`TYPE_CHECKING` blocks count as well: a type is a dependency for the reader.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "folkmoot"

# What the core may take from outside. Everything else reaches for a clock, chance or a machine.
CORE_MAY = {
    "__future__", "abc", "base64", "bisect", "collections", "contextlib", "copy", "dataclasses",
    "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "hmac", "itertools", "json",
    "math", "msgspec", "numpy", "operator", "re", "string", "struct", "textwrap", "tomllib",
    "types", "typing",
}  # fmt: skip
CORE_NEVER = {"numpy.random": "chance", "numpy.memmap": "files"}
SOCKETS = {"socket", "socketserver", "ssl", "asyncio", "grpc", "http", "urllib", "aiohttp", "ray"}
# The rooms a room may import besides itself. `observe` and `cli` are above all others.
BELOW = {
    "core": set[str](),
    "host": {"core"},
    "authority": {"core", "host"},
    "exchange": {"core", "host"},
    "learning": {"core", "host"},
    "simulate": {"core"},
    "client": {"core", "host", "authority", "exchange", "learning"},
    "runs": {"core", "host", "authority", "exchange", "learning", "client"},
    "federated": {"core", "host", "authority", "exchange", "learning"},
    "elastic": {"core", "host", "authority", "exchange", "learning"},
    "unified": {"core", "host", "authority", "exchange", "learning"},
}
TOP = {"observe", "cli"}
# The one place of these rooms where torch is the wire library: its TCPStore.
TORCH_WIRE = "authority/store"


class Import(NamedTuple):
    file: Path
    line: int
    name: str  # dotted, as far as it is known to be a module or one of its names

    def __str__(self) -> str:
        return f"{self.file.relative_to(SOURCE.parent)}:{self.line} imports {self.name}"

    @property
    def outer(self) -> str:
        return self.name.partition(".")[0]

    @property
    def room(self) -> str | None:
        """The room of ours that is imported, if it is one."""
        parts = self.name.split(".")
        if parts[0] != "folkmoot" or len(parts) < 2:
            return None
        return parts[1] if parts[1] in {*BELOW, *TOP} or (SOURCE / parts[1]).is_dir() else None


def imports_of(file: Path) -> Iterator[Import]:
    package = ("folkmoot", *file.relative_to(SOURCE).parent.parts)
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(file, node.lineno, f"{prefix}.{alias.name}")
        elif (
            isinstance(node, ast.Attribute)
            and node.attr == "random"
            and isinstance(node.value, ast.Name)
            and node.value.id == "np"
        ):
            yield Import(file, node.lineno, "numpy.random")


def room_of(file: Path) -> str:
    """The folder below src/folkmoot, or "" for a file that stands at the top."""
    parts = file.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


FILES = sorted(SOURCE.rglob("*.py"))


def broken(found: Import) -> str | None:
    """What an import does wrong, as a sentence, or None."""
    here = room_of(found.file)
    if found.room in TOP and here not in TOP and here:
        return f"{found}: {found.room} looks down on {here}, so {here} must not know it"
    if here in TOP or not here:
        return None
    if here not in BELOW:
        return f"{found}: the room {here} is not in the table of tests/test_rooms.py"
    if found.room and found.room != here and found.room not in BELOW[here]:
        allowed = " and ".join(sorted(BELOW[here])) or "nothing of ours"
        return f"{found}: {here} may import {allowed}, not {found.room}"
    return _outside(found, here)


def _outside(found: Import, here: str) -> str | None:
    for name, what in CORE_NEVER.items():
        if here == "core" and (found.name == name or found.name.startswith(f"{name}.")):
            return f"{found}: the core takes {what} as an argument"
    if here == "core" and found.outer not in {*CORE_MAY, "folkmoot"}:
        return f"{found}: the core is a function; it may import only {', '.join(sorted(CORE_MAY))}"
    if here == "host" and found.outer in ("torch", "ray"):
        return f"{found}: host is the floor of every shell; some of them have no {found.outer}"
    inside = found.file.relative_to(SOURCE).as_posix()
    if found.outer == "torch" and here in ("authority", "exchange"):
        if not inside.startswith(TORCH_WIRE):
            return f"{found}: {here} carries bytes; only {TORCH_WIRE} uses torch, for its TCPStore"
        if not found.name.startswith("torch.distributed"):
            return f"{found}: {TORCH_WIRE} may use torch.distributed's TCPStore and no other torch"
    if found.outer == "torch" and here == "simulate":
        return f"{found}: simulated worlds run the core alone"
    if found.outer in SOCKETS and here == "learning":
        return f"{found}: learning computes; bytes travel through an exchange"
    return None


def test_every_import_is_allowed_in_its_room() -> None:
    imports = (found for file in FILES for found in imports_of(file))
    complaints = [complaint for found in imports if (complaint := broken(found))]
    assert not complaints, "\n" + "\n".join(complaints)


def test_core_calls_neither_files_nor_the_environment() -> None:
    """`open`, `print` and `input` need no import."""
    calls = [
        f"{file.relative_to(SOURCE.parent)}:{node.lineno} calls {node.func.id}()"
        for file in FILES
        if room_of(file) == "core"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("open", "print", "input", "eval", "exec", "hash", "id")
    ]
    assert not calls, "\n".join(calls)


@pytest.mark.parametrize(
    ("file", "name", "complaint"),
    [
        ("core/x.py", "time.time", "the core is a function"),
        ("core/x.py", "numpy.random", "takes chance as an argument"),
        ("core/x.py", "folkmoot.learning.data", "core may import nothing of ours, not learning"),
        ("host/x.py", "torch", "some of them have no torch"),
        ("host/x.py", "folkmoot.authority.server", "host may import core, not authority"),
        ("authority/x.py", "torch", "carries bytes"),
        ("authority/store/x.py", "torch.nn", "no other torch"),
        ("authority/x.py", "folkmoot.exchange.bucket", "not exchange"),
        ("learning/x.py", "socket", "bytes travel through an exchange"),
        ("client/x.py", "folkmoot.federated.participant.loop", "not federated"),
        ("learning/x.py", "folkmoot.cli", "must not know it"),
        ("cellar/x.py", "math", "the room cellar is not in the table"),
        ("core/x.py", "hashlib.sha256", None),
        ("host/x.py", "cryptography.hazmat", None),
        ("learning/x.py", "folkmoot.host.files", None),
        ("authority/store/x.py", "torch.distributed.TCPStore", None),
        ("cli/x.py", "torch", None),
        ("client/x.py", "folkmoot.learning.data", None),
    ],
)
def test_the_table_says_what_the_design_says(file: str, name: str, complaint: str | None) -> None:
    found = broken(Import(SOURCE / file, 1, name))
    assert (complaint is None) == (found is None), found
    assert complaint is None or complaint in str(found)


LIGHT = [
    "folkmoot",
    "folkmoot.cli",
    *sorted(
        ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        for file in FILES
        if room_of(file) == "core"
    ),
]
HEAVY = ("torch", "numba", "grpc", "transformers", "ray", "matplotlib")


@pytest.mark.parametrize(
    ("names", "heavy"),
    [(LIGHT, HEAVY), (["folkmoot.elastic"], (*HEAVY, "numpy", "asyncio"))],
    ids=["core and command line", "a rank"],
)
def test_what_should_start_quickly_loads_nothing_heavy(
    names: list[str], heavy: tuple[str, ...]
) -> None:
    """In a fresh process: what is imported here may come from other tests."""
    code = (
        f"import sys, importlib\nfor name in {names!r}: importlib.import_module(name)\n"
        f"print(*[name for name in {heavy!r} if name in sys.modules])"
    )
    path = {"PYTHONPATH": str(SOURCE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=path
    )
    assert done.stdout.strip() == ""
