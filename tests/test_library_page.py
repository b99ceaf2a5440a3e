"""Every example of docs/library.md, run one after the other as a reader would."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "library.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def run_examples() -> None:
    session: dict[str, Any] = {"__name__": "library"}
    for example in EXAMPLES:
        exec(compile(example, str(PAGE), "exec"), session)


def test_every_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples()


async def test_the_first_example_runs_where_a_loop_is_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook."""
    monkeypatch.chdir(tmp_path)
    assert asyncio.get_running_loop().is_running()
    exec(EXAMPLES[0], {"__name__": "notebook"})


def test_the_page_names_everything_that_is_offered() -> None:
    import folkmoot

    missing = [n for n in folkmoot.__all__ if n not in PAGE.read_text() and n != "__version__"]
    assert not missing
