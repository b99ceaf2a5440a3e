"""Every transcript in this folder, said to the machine it belongs to."""

from pathlib import Path

import pytest

from folkmoot.core.coordinator import TABLE
from folkmoot.core.coordinator.messages import Reason
from scenarios.coordinator_speaks import Speaker
from scenarios.transcript import check

HERE = Path(__file__).parent
COORDINATOR = sorted((HERE / "coordinator").glob("*.txt"))


@pytest.mark.parametrize("path", COORDINATOR, ids=lambda path: path.stem)
def test_the_coordinator_answers_as_written(path: Path) -> None:
    check(path, Speaker())


def test_every_edge_of_the_table_has_a_transcript() -> None:
    written = "\n".join(path.read_text() for path in COORDINATOR)
    missing = [f"{e.source} -> {e.target}: {e.when}" for e in TABLE]
    missing = [edge for edge in missing if f"    {edge}\n" not in written]
    assert not missing


def test_every_refusal_has_a_transcript() -> None:
    written = "\n".join(path.read_text() for path in COORDINATOR)
    missing = [reason.name for reason in Reason if f"refused, {reason.name}:" not in written]
    assert not missing
