"""A model checker: every way a small world can go, breadth first.

A `TransitionSystem` says what a world looks like first, and every step that can follow a world.
`explore` visits each world once. It finds

- a step that breaks a rule: the model says so in the step's `problem`; and
- a world from which those who must go on can step for ever and never get anywhere, though each of
  them is let step again and again: a cycle of worlds in which each of them has a step.

The story it tells is a shortest one that leads there.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

World = TypeVar("World", bound=Hashable)


class Transition(NamedTuple, Generic[World]):
    who: Hashable  # whose step it is
    what: object  # in words, by `str`
    after: World
    problem: str = ""


class TransitionSystem(Protocol[World]):
    def first(self) -> World: ...

    def steps(self, world: World) -> Iterable[Transition[World]]: ...

    def must_go_on(self, world: World) -> frozenset[Hashable]:
        """Who must get somewhere from here; nobody while faults go on, or when all is done."""
        ...


class Exploration(NamedTuple):
    states: int
    transitions: int
    problem: str = ""
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        counted = f"{self.states:,} states, {self.transitions:,} transitions"
        if not self.problem:
            return f"{counted}: every rule holds"
        return "\n".join([f"{counted}: {self.problem}", *(f"    {line}" for line in self.story)])


class TooManyStates(Exception):
    """The bounds of the model are too wide to look at all of it."""


def explore(model: TransitionSystem[World], limit: int = 20_000_000) -> Exploration:
    """Visit every world; stop at the first problem."""
    collecting = gc.isenabled()
    gc.disable()  # nothing here refers to itself, and looking for that takes half of the time
    try:
        return _explore(model, limit)
    finally:
        if collecting:
            gc.enable()


def _explore(model: TransitionSystem[World], limit: int) -> Exploration:
    first = model.first()
    number, worlds = {first: 0}, [first]
    came: list[tuple[int, Hashable, object]] = [(-1, "", "")]  # from which world, by which step
    calm: dict[int, list[tuple[int, Hashable]]] = {}  # the steps of worlds that must go on
    transitions = 0
    at = 0
    while at < len(worlds):
        world = worlds[at]
        edges = calm.setdefault(at, []) if model.must_go_on(world) else None
        for step in model.steps(world):
            transitions += 1
            if step.problem:
                story = (*_story(came, at), f"{step.who}: {step.what}")
                return Exploration(len(worlds), transitions, step.problem, story)
            to = number.get(step.after)
            if to is None:
                to = number[step.after] = len(worlds)
                worlds.append(step.after)
                came.append((at, step.who, step.what))
            if edges is not None:
                edges.append((to, step.who))
        if len(worlds) > limit:
            raise TooManyStates(f"more than {limit:,} states: choose tighter bounds")
        at += 1
    stuck = next(_stuck(calm, lambda at: model.must_go_on(worlds[at])), None)
    if stuck is None:
        return Exploration(len(worlds), transitions)
    waiting = ", ".join(sorted(map(str, model.must_go_on(worlds[stuck]))))
    problem = f"no fault is left, and nobody ever goes on: {waiting}"
    return Exploration(len(worlds), transitions, problem, _story(came, stuck))


def _story(came: list[tuple[int, Hashable, object]], at: int) -> tuple[str, ...]:
    lines = []
    while at > 0:
        at, who, what = came[at]
        lines.append(f"{who}: {what}")
    return tuple(reversed(lines))


class _Who(Protocol):
    def __call__(self, at: int) -> frozenset[Hashable]: ...


def _stuck(calm: dict[int, list[tuple[int, Hashable]]], must_go_on: _Who) -> Iterator[int]:
    """Worlds that a schedule which is fair to all who must go on need never leave."""
    for component in _components(calm):
        inside = set(component)
        moving = {who for at in component for to, who in calm[at] if to in inside}
        ends = not any(calm[at] for at in component)
        if ends or (moving and moving >= must_go_on(component[0])):
            yield min(component)


def _components(calm: dict[int, list[tuple[int, Hashable]]]) -> Iterator[list[int]]:
    """The strongly connected components (Tarjan's, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in calm:
        if root in order:
            continue
        work = [(root, iter(calm[root]))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            at, edges = work[-1]
            for to, _ in edges:
                if to not in calm:
                    continue
                if to not in order:
                    order[to] = low[to] = len(order)
                    stack.append(to)
                    on_stack.add(to)
                    work.append((to, iter(calm[to])))
                    break
                if to in on_stack:
                    low[at] = min(low[at], order[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == order[at]:
                    component = [stack.pop()]
                    while component[-1] != at:
                        component.append(stack.pop())
                    on_stack.difference_update(component)
                    yield component
