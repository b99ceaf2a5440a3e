"""Every transcript in this folder, said to the machine it belongs to."""

from pathlib import Path

import pytest

from scenarios.client_words import ClientWords
from scenarios.coordinator_words import CoordinatorWords
from scenarios.federation_words import FederationWords
from scenarios.iteration_words import IterationWords
from scenarios.job_words import JobWords
from scenarios.transcript import Words, check

MACHINES: dict[str, type[Words]] = {
    "coordinator": CoordinatorWords,
    "client": ClientWords,
    "federation": FederationWords,
    "iteration": IterationWords,
    "job": JobWords,
}


def transcripts(folder: str) -> list[Path]:
    return sorted((Path(__file__).parent / folder).glob("*.txt"))


def written(folder: str) -> str:
    return "\n".join(path.read_text() for path in transcripts(folder))


@pytest.mark.parametrize(
    ("words", "path"),
    [
        pytest.param(words, path, id=f"{folder}/{path.stem}")
        for folder, words in MACHINES.items()
        for path in transcripts(folder)
    ],
)
def test_the_machine_answers_as_written(words: type[Words], path: Path) -> None:
    check(path, words())


@pytest.mark.parametrize("folder", MACHINES)
def test_every_edge_of_the_table_has_a_transcript(folder: str) -> None:
    text = written(folder)
    edges = [f"{e.source} -> {e.target}: {e.when}" for e in MACHINES[folder].machine.TABLE]
    assert [edge for edge in edges if f"    {edge}\n" not in text] == []


@pytest.mark.parametrize("folder", MACHINES)
def test_every_refusal_has_a_transcript(folder: str) -> None:
    text = written(folder)
    assert [code for code in MACHINES[folder].codes if f"    refused, {code}:" not in text] == []
