"""The world that docs/simulation.md adds is a whole one: it plays and catches its mutant."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from folkmoot.simulate import WORLDS, play, replay
from folkmoot.simulate.mutants import broken, seeds_to_catch
from folkmoot.simulate.worlds import shorten

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"


@pytest.fixture
def ballot() -> Iterator[type]:
    session: dict[str, Any] = {"__name__": "page"}
    for example in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S):
        exec(compile(example, str(PAGE), "exec"), session)
    yield WORLDS["ballot"]
    del WORLDS["ballot"]


def test_the_example_plays_and_holds(ballot: type) -> None:
    reports = [play("ballot", seed) for seed in range(100)]
    assert [r.violation for r in reports if r.violation] == []


def test_the_examples_mutant_is_caught_and_its_transcript_shortened(ballot: Any) -> None:
    (mutant,) = ballot.mutants.values()
    caught = seeds_to_catch(mutant, partial(play, "ballot"), range(100))
    assert caught is not None
    with broken(mutant):
        report = next(r for seed in range(100) if (r := play("ballot", seed)).violation)
        short = shorten(report.transcript)
        violation = replay(short)
    assert violation is not None
    assert violation.invariant == "everybody_votes_once"
    assert short.count("\n> ") == 2
    assert replay(short) is None
