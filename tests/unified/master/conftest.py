from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a job may write; its processes find these tests' modules."""
    monkeypatch.setenv("PYTHONPATH", f"{TESTS.parent / 'src'}:{TESTS}")
    return tmp_path
