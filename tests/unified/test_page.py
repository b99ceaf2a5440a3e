"""The examples of docs/job.md, run as a reader would."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from folkmoot.unified import api
from support.commands import FOLKMOOT

PAGE = (Path(__file__).parents[2] / "docs" / "job.md").read_text()
DARTS, BUILDER = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[:2]
(JOB,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[:1]


@pytest.fixture
def files(working_folder: Path) -> Path:
    (working_folder / "darts.py").write_text(DARTS)
    (working_folder / "job.toml").write_text(JOB)
    return working_folder


def test_the_first_job_runs(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLKMOOT_JOBS", str(files / "jobs"))

    def folkmoot(*words: str) -> str:
        command = [*FOLKMOOT, "job", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return done.stdout

    folkmoot("run", "job.toml")
    assert re.search(r"pi is about 3\.1\d+ say 3 throwers", folkmoot("logs", "darts", "trainer-0"))


def test_the_builder_says_the_same_as_the_file(files: Path) -> None:
    names: dict[str, Any] = {}
    exec(BUILDER, names)
    assert names["job"] == api.load_job("job.toml")


def test_the_page_names_every_error_of_a_call() -> None:
    for name in ("RemoteError", "WorkerDied", "CallTimeout"):
        assert f"`{name}`" in PAGE
