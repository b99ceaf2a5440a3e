"""Every transcript of the federation, said to its coordinator's machine."""

from pathlib import Path

import pytest

from folkmoot.core.federation import messages as m
from folkmoot.core.federation.machine import TABLE
from scenarios.federation_speaks import Speaker
from scenarios.transcript import check

TRANSCRIPTS = sorted((Path(__file__).parent / "federation").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_federation_answers_as_written(path: Path) -> None:
    check(path, Speaker())


def test_every_edge_of_the_table_has_a_transcript() -> None:
    written = "\n".join(path.read_text() for path in TRANSCRIPTS)
    assert [
        edge for edge in TABLE if f"{edge.source} -> {edge.target}: {edge.when}\n" not in written
    ] == []


def test_every_refusal_has_a_transcript() -> None:
    written = "\n".join(path.read_text() for path in TRANSCRIPTS)
    assert [code for code in m.Reason if f"refused, {code}:" not in written] == []
