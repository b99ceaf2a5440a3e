"""The machines broken on purpose: the simulator notices."""

from functools import partial

import pytest

from folkmoot.simulate import WORLDS, play
from folkmoot.simulate.mutants import seeds_to_catch

SEEDS = range(200, 400)
# Those that take many worlds, with one that catches them as the rules are: it is played first.
LATE = {
    "what cannot be had is waited for": 249,
    "any model is a checkpoint": 210,
    "a rewind keeps the progress": 207,
    "a checkpoint counts what is still on its way": 208,
    "an aggregator begins uncalled": 316,
    "the newest update counts": 282,
    "the expelled may come back": 252,
    "anybody may deliver": 229,
    "the next round begins with whoever is there": 223,
    "who suffered is charged": 252,
    "who fails again does not wait": 240,
    "a model is handed on before it is drained": 577,
    "one auditor has results failed": 297,
    "one witness has results screened": 221,
    "the blame stays with who was told first": 268,
    "an aggregator obeys an old call": 658,
    "the slowest round is usual": 7_000_091,
    "all go on as before": 544,
}
BROKEN = [
    (world, name)
    for world in ("run", "federation", "iteration", "job")
    for name in WORLDS[world].mutants
]


@pytest.mark.parametrize(("world", "name"), BROKEN)
def test_a_mutant_is_caught(world: str, name: str) -> None:
    mutant = WORLDS[world].mutants[name]
    seeds = [LATE.get(name, SEEDS.start), *SEEDS]
    assert seeds_to_catch(mutant, partial(play, world), seeds) is not None


def test_the_machine_is_whole_after_a_mutant() -> None:
    quorum_of_one = WORLDS["run"].mutants["a quorum of one"]
    assert seeds_to_catch(quorum_of_one, partial(play, "run"), [2]) is not None
    assert play("run", 2).violation is None
