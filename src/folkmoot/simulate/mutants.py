"""A machine broken on purpose: each mutant must be caught by the invariants within a few seeds.

A mutant is a machine with one rule wrong. It shows that the worlds really visit what the
invariants speak of; a mutant that survives is a hole in the simulator.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from folkmoot.simulate.report import WorldReport

Patch = tuple[Any, Any, Any]  # where the rule lives (a module or a dict), its name, the wrong one
Mutants = dict[str, tuple[Patch, ...]]


@contextmanager
def broken(mutant: tuple[Patch, ...]) -> Iterator[None]:
    """The machine with one rule wrong."""
    with ExitStack() as stack:
        for where, rule, wrong in mutant:
            if isinstance(where, dict):
                stack.enter_context(patch.dict(where, {rule: wrong}))
            else:
                stack.enter_context(patch.object(where, rule, wrong))
        yield


def seeds_to_catch(
    mutant: tuple[Patch, ...], play: Callable[[int], WorldReport], seeds: Iterable[int]
) -> tuple[int, str] | None:
    """How many seeds it took until an invariant failed, and which; None when none did."""
    with broken(mutant):
        for count, seed in enumerate(seeds, 1):
            violation = play(seed).violation
            if violation:
                return count, violation
    return None
