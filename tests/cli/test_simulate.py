"""`folkmoot simulate` says what it played, and fails with something to work on."""

import pytest

from folkmoot.simulate import WorldReport, replay, worlds
from folkmoot.simulate.federation.mutants import MUTANTS as FEDERATION_MUTANTS
from folkmoot.simulate.mutants import broken
from folkmoot.simulate.run.mutants import MUTANTS
from support.commands import folkmoot


def run(*arguments: str) -> tuple[int, str]:
    result = folkmoot("simulate", *arguments)
    return result.exit_code, result.stdout


def test_good_worlds_end_with_success_and_a_summary() -> None:
    code, text = run("--seeds", "4", "--jobs", "1")
    assert code == 0
    assert "4 worlds in" in text
    assert "every invariant held" in text


def test_two_jobs_play_the_same_worlds_as_one() -> None:
    summaries = [
        run("--world", "federation", "--seeds", "30", "--jobs", jobs)[1] for jobs in ("1", "2")
    ]
    counted = [text.partition("events")[2] for text in summaries]
    assert counted[0] == counted[1]
    assert counted[0]


def test_a_failing_world_ends_with_an_error_and_a_transcript_that_fails_in_a_test() -> None:
    with broken(MUTANTS["owed samples are dropped"]):
        code, text = run("--seeds", "3", "--jobs", "1")
        transcript = text.partition("replay this transcript:")[2]
        violation = replay(transcript)
    assert code == 1
    assert "every_sample_is_accounted_for" in text
    assert violation is not None
    assert violation.invariant == "every_sample_is_accounted_for"
    assert replay(transcript) is None


def test_an_unknown_world_is_refused_with_the_known_ones() -> None:
    result = folkmoot("simulate", "--world", "moon")
    assert result.exit_code == 2
    assert "run" in result.output


def test_mutants_of_the_chosen_machine_are_caught_or_named() -> None:
    code, text = run("--world", "federation", "--mutants", "--seeds", "1")
    assert code == 1
    assert "a round closes with one update: caught after 1 seed" in text
    assert f"of {len(FEDERATION_MUTANTS)} mutants caught" in text


def test_mutants_meet_the_worlds_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []

    def play(world: str, seed: int) -> WorldReport:
        played.append(seed)
        return WorldReport(seed, 0)

    monkeypatch.setattr(worlds, "play", play)
    _, text = run("--world", "federation", "--mutants", "--start", "900", "--seeds", "2")
    assert played == [900, 901] * len(FEDERATION_MUTANTS)
    assert "survived 2 seeds" in text
