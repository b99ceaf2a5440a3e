"""Every interleaving of a few ranks with every fault between: what must hold does.

And the checker is no sleeper: it finds the seed's own election broken, and every broken machine.
"""

from collections.abc import Hashable, Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest

from folkmoot.core.iteration import machine
from folkmoot.simulate.iteration.checker import Exploration, TooManyStates, Transition, explore
from folkmoot.simulate.iteration.model import Bounds, Ranks
from folkmoot.simulate.iteration.mutants import MUTANTS
from folkmoot.simulate.mutants import broken


def check(bounds: Bounds, **rules: object) -> Exploration:
    verdict = explore(Ranks(bounds, **rules))
    print(f"{bounds}\n{verdict}")
    assert verdict.problem == "", str(verdict)
    return verdict


# Quick bounds; `make faults` looks at wider ones.


def test_three_ranks_start_one_is_started_again_and_one_dies() -> None:
    verdict = check(Bounds(3, iterations=1, restarts=1, crashes=1, begun=True, split=False))
    assert verdict.states > 30_000


def test_three_ranks_suspect_each_other_over_two_iterations() -> None:
    verdict = check(Bounds(3, iterations=2, restarts=0, crashes=0, begun=True, split=False))
    assert verdict.states > 40_000


def test_two_ranks_one_is_started_again_between_any_two_operations() -> None:
    check(Bounds(2, iterations=1, restarts=1, crashes=0, begun=True))


def test_three_ranks_start_from_an_empty_store() -> None:
    check(Bounds(3, iterations=1, restarts=0, crashes=1))


def test_two_ranks_read_key_by_key_and_lose_answers() -> None:
    check(Bounds(2, iterations=2, restarts=0, crashes=0, losses=1, torn=True, begun=True))


def test_two_ranks_give_up_on_stragglers(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the keys of an iteration are deleted as soon as the next one is decided."""
    monkeypatch.setattr(machine, "KEPT", 1)
    bounds = Bounds(2, iterations=3, restarts=0, crashes=0, begun=True, split=False)
    check(bounds, straggler_timeout=1)


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(3, iterations=2, restarts=1, crashes=0, begun=True, split=False),
        Bounds(3, iterations=2, restarts=0, crashes=0, begun=True),
        Bounds(3, iterations=1, restarts=2, crashes=0, begun=True, split=False),
        Bounds(3, iterations=1, restarts=1, crashes=1, begun=True),
        Bounds(3, iterations=1, restarts=1, crashes=1, losses=1, begun=True, split=False),
        Bounds(3, iterations=1, restarts=1, crashes=1, split=False),
        Bounds(3, iterations=3, restarts=0, crashes=0, begun=True, calm=False, split=False),
        Bounds(2, iterations=2, restarts=1, crashes=1, begun=True),
        Bounds(2, iterations=1, restarts=1, crashes=1, losses=1, torn=True, begun=True),
    ],
    ids=str,
)
def test_wider_bounds(bounds: Bounds) -> None:
    check(bounds)


# What the checker finds.

# Bounds in which each broken machine goes wrong, and in which words.
FOUND = {
    "a decision is set": (Bounds(2), "iteration 0 is followed by 0"),
    "a decision expects nothing": (Bounds(2, restarts=0), "nobody ever goes on"),
    "a decision skips one": (Bounds(2), "is proposed after"),
    "an arrival counts without its process": (Bounds(2), "is proposed, and there were"),
    "any decision wakes": (Bounds(2), "takes part in iteration 0 again"),
    "the newest decision is deleted": (Bounds(2), "the newest decision is deleted"),
    "all go on as before": (Bounds(2, 3), "which was not decided"),
    "a proposal wakes": (Bounds(2, 3), "which was not decided"),
    "nobody is admitted": (Bounds(3, 5, 0, 0), "is alive and is starved"),
    "only the winner wakes": (Bounds(2, restarts=0), "nobody ever goes on"),
    "nobody is silent": (Bounds(2, restarts=0), "nobody ever goes on"),
    "a restart is the same process": (Bounds(2), "did not arrive"),
    "nobody is waited for": (Bounds(2), "without waiting for"),
    "the members are everybody": (Bounds(3, 3, 0, 0), "is proposed after"),
    "any note counts": (Bounds(2), "is proposed after"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_machine_is_found(name: str) -> None:
    bounds, words = FOUND[name]
    with broken(MUTANTS[name]):
        verdict = explore(Ranks(bounds._replace(begun=True)))
    assert words in verdict.problem


def test_a_winner_that_dies_before_it_wakes_the_others_is_the_shortest_story() -> None:
    with broken(MUTANTS["only the winner wakes"]):
        verdict = explore(Ranks(Bounds(2, 1, 0, 1, begun=True)))
    assert verdict.story[-2:] == (
        "rank 0, process 1: compares and sets global_iteration_barrier:consensus to"
        ' {"iteration":0,"progress":0,"members":[[0,1]],"behind":[],"admit":[]} (done)',
        "faults: stop; 1 have died",
    )


def test_bounds_that_are_too_wide_are_said_to_be() -> None:
    with pytest.raises(TooManyStates, match="more than 100 states"):
        explore(Ranks(Bounds(2)), limit=100)


# The protocol as the seed has it.


class Seeds(NamedTuple):
    at: tuple[str, ...]  # the next line of each rank
    arrived: frozenset[int] = frozenset()
    consensus: int | None = None
    counter: int = 42
    ready: int | None = None
    crashes: int = 1
    calm: bool = False


LINES = ("append", "look", "set", "get", "increment", "record", "clear", "signal", "done")
NEXT = dict(pairwise(LINES))


class Seed:
    """append; all there? set(consensus, me); get(consensus) == me? then increment, …, signal.

    With `compare`, the election is a compare-and-set, and only the election.
    """

    def __init__(self, ranks: int, crashes: int = 0, *, compare: bool = False) -> None:
        self.ranks, self.crashes, self.compare = ranks, crashes, compare

    def first(self) -> Seeds:
        return Seeds(("append",) * self.ranks, crashes=self.crashes)

    def must_go_on(self, world: Seeds) -> frozenset[Hashable]:
        alive = (rank for rank, line in enumerate(world.at) if line not in ("done", "dead"))
        return frozenset(alive) if world.calm else frozenset()

    def steps(self, world: Seeds) -> Iterator[Transition[Seeds]]:
        for rank, line in enumerate(world.at):
            if line not in ("done", "dead"):
                after, to = self.step(world, rank, line)
                twice = "42 is followed twice" if after.counter > 43 else ""
                yield Transition(rank, line, _at(after, rank, to), twice)
                if world.crashes and not world.calm:
                    yield Transition(rank, "dies", _at(world, rank, "dead")._replace(crashes=0))
        if not world.calm:
            yield Transition("faults", "stop", world._replace(calm=True, crashes=0))

    def step(self, world: Seeds, rank: int, line: str) -> tuple[Seeds, str]:
        active = {rank for rank, line in enumerate(world.at) if line != "dead"}
        match line:
            case "append":
                return world._replace(arrived=world.arrived | {rank}), "look"
            case "look":
                return world, "set" if active <= world.arrived else "look"
            case "set" if not self.compare or world.consensus is None:
                return world._replace(consensus=rank), "get"
            case "get":
                return world, "increment" if world.consensus == rank else "wait"
            case "increment":
                return world._replace(counter=world.counter + 1), "record"
            case "clear":
                return world._replace(ready=None), "signal"
            case "signal":
                return world._replace(ready=world.counter), "done"
            case "wait":
                return world, "done" if world.ready else "wait"
        return world, NEXT[line]


def _at(world: Seeds, rank: int, line: str) -> Seeds:
    return world._replace(at=(*world.at[:rank], line, *world.at[rank + 1 :]))


def test_the_seeds_election_has_two_winners() -> None:
    verdict = explore(Seed(3))
    assert verdict.problem == "42 is followed twice"
    lines = [line for line in verdict.story if line.split(": ")[1] in ("set", "get")]
    first, second = lines[0][0], lines[-1][0]
    assert lines == [f"{first}: set", f"{first}: get", f"{second}: set", f"{second}: get"]


def test_a_single_winner_that_dies_in_the_seeds_protocol_holds_up_everybody() -> None:
    assert explore(Seed(3, compare=True)).problem == ""
    verdict = explore(Seed(3, crashes=1, compare=True))
    assert verdict.problem.startswith("no fault is left, and nobody ever goes on")
    assert any(line.endswith(": dies") for line in verdict.story)
