"""What the pages draw is what the machines do."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("diagrams", ROOT / "scripts" / "pages.py")
diagrams = importlib.util.module_from_spec(spec)
spec.loader.exec_module(diagrams)


@pytest.mark.parametrize("page", diagrams.PAGES)
def test_diagrams_have_not_drifted_from_the_tables(page: str) -> None:
    text = (ROOT / page).read_text()
    assert diagrams.drawn(text) == text, "run `make pages`"


def test_every_diagram_is_shown() -> None:
    pages = "".join((ROOT / page).read_text() for page in diagrams.PAGES)
    assert [name for name in diagrams.DIAGRAMS if f"<!-- diagram: {name} -->" not in pages] == []
