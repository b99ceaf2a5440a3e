"""A failing world prints a transcript, and the transcript fails in a test."""

import pytest

from folkmoot.simulate import Report, replay, simulate
from folkmoot.simulate.run.mutants import broken
from folkmoot.simulate.run.world import RunWorld
from folkmoot.simulate.shrink import shrink
from folkmoot.simulate.transcript import Transcript

NAMES = ("owed samples are dropped", "accusations are believed", "a quorum of one")


def first_failure(name: str) -> Report:
    return next(report for seed in range(100) if (report := simulate(seed)).violation)


@pytest.mark.parametrize("name", NAMES)
def test_a_printed_transcript_reproduces_the_failure_and_passes_once_repaired(name: str) -> None:
    with broken(name):
        report = first_failure(name)
        violation = replay(report.transcript)
        assert violation is not None
        assert str(violation) == report.violation
    assert replay(report.transcript) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_shortened_transcript_fails_in_the_same_way(name: str) -> None:
    with broken(name):
        report = first_failure(name)
        short = shrink(report.transcript)
        violation = replay(short)
        assert violation is not None
        assert str(report.violation).startswith(violation.invariant)
    assert len(short.splitlines()) < len(report.transcript.splitlines())
    assert replay(short) is None


def test_the_transcript_of_a_good_world_replays_to_the_same_answers() -> None:
    world = RunWorld(3)
    world.play()
    text = str(Transcript.of(world.audit, 3, None))
    assert replay(text) is None


def test_a_line_that_is_no_transcript_is_named() -> None:
    with pytest.raises(ValueError, match="not 'what'"):
        replay("run {}\nwhat is this".replace("run {}\n", ""))
    with pytest.raises(ValueError, match="needs a line 'run"):
        replay("# nothing")
