"""Damaged instructions: none corrupts the account, none exceeds what a transaction may cost."""

import os

import pytest

from authority.solana.at_length import at_length
from authority.solana.at_length import inputs as play_inputs
from authority.solana.fuzzing import Broken, Fuzzer
from authority.solana.test_differential import MUTANTS
from folkmoot.authority.solana.build import build

MILLION = int(os.environ.get("FOLKMOOT_INPUTS", "1000000"))


def test_no_damaged_instruction_corrupts_a_run() -> None:
    fuzzer = Fuzzer()
    for number in range(40):
        fuzzer.play(number)
    refused = {name for name in fuzzer.counted if name != "taken"}
    assert fuzzer.counted["taken"] > 40
    assert len(refused) > 20, "inputs get past the first check"


@pytest.mark.faults
@pytest.mark.timeout(3600)  # three minutes on two idle cores
def test_no_instruction_of_a_million_corrupts_a_run() -> None:
    *_, (until, counted) = at_length("inputs", range(MILLION))
    assert until == counted.total() == MILLION


@pytest.mark.faults
@pytest.mark.parametrize("mutant", ["removal_moves_up"])
def test_a_program_that_corrupts_its_account_is_noticed(mutant: str) -> None:
    with pytest.raises(Broken, match="it was taken, and"):
        play_inputs(build(mutant=int(MUTANTS[mutant])), range(25_000))
