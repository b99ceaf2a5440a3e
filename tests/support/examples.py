"""The scripts of examples/, run as a reader would."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def command(name: str, *arguments: str | Path) -> list[str]:
    return [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, arguments)]


def run_example(name: str, *arguments: str | Path) -> str:
    """What it prints until it has ended well."""
    called = command(name, *arguments)
    done = subprocess.run(called, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
