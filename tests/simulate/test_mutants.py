"""The machine broken on purpose: the simulator notices."""

import pytest

from folkmoot.simulate import simulate
from folkmoot.simulate.run.mutants import MUTANTS, seeds_to_catch

SEEDS = 60


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str) -> None:
    assert seeds_to_catch(name, simulate, SEEDS) is not None


def test_the_machine_is_whole_after_a_mutant() -> None:
    seeds_to_catch("a quorum of one", simulate, 1)
    assert simulate(0).violation is None
