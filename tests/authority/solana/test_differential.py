"""The program is the core: random sequences, transcripts of the core, mutants that are caught."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from solders.account import Account
from solders.pubkey import Pubkey

from authority.solana import differential
from authority.solana.differential import Pair, first_difference, play
from authority.solana.vm import Vm
from folkmoot.authority.solana import subset
from folkmoot.authority.solana.build import FOLDER, build
from folkmoot.authority.solana.seeds import HashChain
from folkmoot.core.coordinator import Run
from folkmoot.core.machine import Effect, Event
from scenarios.coordinator_words import CoordinatorWords
from scenarios.transcript import replay

# All but those of rules that the program leaves out.
TRANSCRIPTS = [
    path
    for path in sorted((Path(__file__).parents[2] / "scenarios" / "coordinator").glob("*.txt"))
    if not any(f" {key}=" in path.read_text() for key in subset.LEFT_OUT)
]
MUTANTS = dict(re.findall(r"#define MUTANT_(\w+) (\d+)", (FOLDER / "mutants.h").read_text()))
# Of the others `make faults` takes care: each has to be compiled.
QUICK = ("one_witness_is_enough", "reveal_unchecked")


# `make program-check` plays twenty thousand.
@pytest.mark.parametrize("tens", range(6))
def test_random_sequences_leave_program_and_core_in_the_same_state(
    vm: Vm, template: Account, tens: int
) -> None:
    events = refusals = 0
    for number in range(tens * 10, tens * 10 + 10):
        pair = play(number, vm, template)
        events, refusals = events + pair.events, refusals + pair.refusals
    assert 0 < refusals < events, "only sense, or only nonsense"


class PairWords(CoordinatorWords):
    """A transcript told to the core and to the program; seeds are the program's own."""

    def __init__(self, vm: Vm, template: Account) -> None:
        super().__init__()
        self.vm, self.template = vm, template
        self.pair: Any = None

    def create_run(self, **named: str) -> Any:
        run: Run = super().create_run(**named).run
        # Transcripts know no limit of clients; the account does.
        config = replace(run.config, max_clients=min(run.config.max_clients, 256))
        run = replace(run, run_id="run", config=config)
        subset.check(run)
        self.pair = Pair(self.vm, run, self.template, [])
        return self.pair.core

    def apply(self, event: Event, now: int, seed: int) -> tuple[Effect, ...]:
        sender = getattr(event, "sender", b"")
        if len(sender) == 32:
            differential.CHAINS.setdefault(sender, HashChain(sender, 500))
            self.vm.fund(Pubkey(sender))
        if getattr(event, "run_id", "") == "moot":
            event = replace(event, run_id="run")
        if (run := getattr(event, "run", None)) is not None and run.run_id == "moot":
            event = replace(event, run=replace(run, run_id="run"))
        self.pair.leap(differential.START - self.pair.seconds + -(-now // 1000))
        self.pair.say(event)
        self.state = self.pair.core
        return ()


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_transcripts_of_the_core_run_on_the_program(
    vm: Vm, template: Account, path: Path
) -> None:
    words = PairWords(vm, template)
    # Other seeds elect others: the written answers are the core's alone. Pair compares the two.
    replay(path.read_text(), words)
    assert words.pair.events > 0


@pytest.mark.parametrize("mutant", QUICK)
def test_a_broken_rule_is_noticed(mutant: str) -> None:
    assert first_difference(build(mutant=int(MUTANTS[mutant])), range(150)) is not None


@pytest.mark.faults
@pytest.mark.parametrize("mutant", sorted(set(MUTANTS) - set(QUICK)))
def test_every_broken_rule_is_noticed(mutant: str) -> None:
    assert first_difference(build(mutant=int(MUTANTS[mutant])), range(300)) is not None
