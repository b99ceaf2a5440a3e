import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a job may write; its processes find these tests' modules."""
    monkeypatch.setenv("PYTHONPATH", f"{TESTS.parent / 'src'}:{TESTS}")
    return tmp_path


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Its modules can be imported, and are gone from Python's memory afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for module in tmp_path.glob("*.py"):
        sys.modules.pop(module.stem, None)


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.faults)])
def ray(request: pytest.FixtureRequest) -> str:
    """Where a job's actors live: "" for this machine, or the address of a Ray cluster.

    On Ray a job takes seconds to start: most tests run there with `make faults` only.
    """
    return _where(request)


@pytest.fixture(params=["local", "ray"])
def everywhere(request: pytest.FixtureRequest) -> str:
    """As `ray`, for the few that `make test` runs there, too."""
    return _where(request)


def _where(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "local" else str(request.getfixturevalue("ray_cluster"))
