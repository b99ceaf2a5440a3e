"""A transition table: what a state machine may do, in one place, that also draws itself.

A machine lists its edges in order. `first` finds the edge that is due; nothing else in a machine
changes its phase, so the table *is* the machine, and the diagrams in the docs come from it.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

Context = TypeVar("Context")


class Edge(NamedTuple, Generic[Context]):
    """From `source` to `target` when `due` holds; `when` says so in words."""

    source: str
    target: str
    when: str
    due: Callable[[Context], bool]


def first(table: Iterable[Edge[Context]], phase: str, context: Context) -> Edge[Context] | None:
    """The first edge out of `phase` that is due, or None."""
    for edge in table:
        if edge.source == phase and edge.due(context):
            return edge
    return None


def mermaid(table: Iterable[Edge[Any]], initial: str, finals: Iterable[str] = ()) -> str:
    """The table as a mermaid state diagram."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {initial}"]
    lines += [f"    {e.source} --> {e.target}: {e.when}" for e in table]
    lines += [f"    {final} --> [*]" for final in finals]
    return "\n".join([*lines, "```"])
