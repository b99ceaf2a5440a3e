"""What the benchmarks measured, for the pages: one file each, benchmarks/results/NAME.json.

`make pages` fills README and docs from these files. A benchmark writes its file when it was run as
`make` runs it; with other settings it only prints. Each file says when, of which commit, on what
kind of machine and by which command its figures were measured.
"""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
GOALS = {True: "met", False: "missed"}
"""What a benchmark prints behind a goal."""


def write(name: str, source: str, figures: Mapping[str, Any]) -> None:
    """Keep the figures of a benchmark; `source` is the command that measures them again."""
    record = {
        "source": source,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit(),
        "machine": machine(),
        "figures": figures,
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    print(f"written to {path.relative_to(HERE.parent)}; `make pages` puts it into the pages")


def significant(figure: float, digits: int = 3) -> float:
    """As many digits as are worth reading."""
    return float(f"{figure:.{digits}g}")


def commit() -> str:
    """The commit that was measured, with a plus sign when there were changes beside it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", "../src", ".", ":!results")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def machine() -> dict[str, Any]:
    """What figures depend on; nothing that tells whose machine it is."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    return {
        "cores": os.cpu_count(),
        "cpu": cpu_model(),
        "python": platform.python_version(),
        "torch": torch,
    }


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor())
