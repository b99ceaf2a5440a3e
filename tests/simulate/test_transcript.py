"""A failing world prints a transcript, and the transcript fails in a test."""

import itertools

import msgspec
import pytest

from folkmoot.core.federation import machine
from folkmoot.simulate import WORLDS, WorldReport, play, replay
from folkmoot.simulate.mutants import broken
from folkmoot.simulate.transcript import Transcript
from folkmoot.simulate.worlds import shorten

BROKEN = (
    ("run", "owed samples are dropped"),
    ("run", "accusations are believed"),
    ("run", "a quorum of one"),
    ("federation", "updates are combined as they came"),
    ("federation", "a round draws its own seed"),
    ("federation", "the newest update counts"),
    ("iteration", "a decision is set"),
    ("iteration", "an arrival counts without its process"),
    ("iteration", "any decision wakes"),
    ("job", "the second death of a role is ignored"),
    ("job", "who suffered is charged"),
    ("job", "no budget is ever used up"),
)


def first_failure(world: str) -> WorldReport:
    # A run's world 11 is small, and fails by each of these mutants.
    seeds = range(11 if world == "run" else 0, 100)
    return next(report for seed in seeds if (report := play(world, seed)).violation)


@pytest.mark.parametrize(("world", "name"), BROKEN)
def test_a_printed_transcript_reproduces_the_failure_and_passes_once_repaired(
    world: str, name: str
) -> None:
    with broken(WORLDS[world].mutants[name]):
        report = first_failure(world)
        violation = replay(report.transcript)
        assert violation is not None
        assert str(violation) == report.violation
    assert replay(report.transcript) is None


@pytest.mark.parametrize(("world", "name"), BROKEN)
def test_a_shortened_transcript_fails_in_the_same_way(world: str, name: str) -> None:
    with broken(WORLDS[world].mutants[name]):
        report = first_failure(world)
        short = shorten(report.transcript)
        violation = replay(short)
        assert violation is not None
        assert str(report.violation).startswith(violation.invariant)
    assert len(short.splitlines()) < len(report.transcript.splitlines())
    assert replay(short) is None


@pytest.mark.parametrize("name", WORLDS)
def test_the_transcript_of_a_good_world_replays_to_the_same_answers(name: str) -> None:
    world = WORLDS[name](3)
    world.play()
    audit = world.audit
    text = str(Transcript(type(audit), audit.config, audit.log, "a good world"))
    assert replay(text) is None
    assert shorten(text) == text


def test_a_machine_that_forgets_is_caught_by_its_transcript(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The journal of a machine that also looks at something else does not bring its state back."""
    text = """federation {"rules":{"rounds":2}}
    > 5 1 {"type":"Rendezvous","id":"a"}
    * {"fact":"Crashed"}
    """
    assert replay(text) is None
    calls, apply = itertools.count(1), machine.apply

    def moody(state, event, now, seed):
        changed, effects = apply(state, event, now, seed)
        return msgspec.structs.replace(changed, epoch_base=next(calls)), effects

    monkeypatch.setattr(machine, "apply", moody)
    violation = replay(text)
    assert violation is not None
    assert violation.invariant == "a_journal_gives_back_what_was_lost"


def test_a_line_that_is_no_transcript_is_named() -> None:
    with pytest.raises(ValueError, match="not 'what'"):
        replay("what is this")
    with pytest.raises(ValueError, match="needs a line 'federation"):
        replay("# nothing")
