"""A federation's world as text that a test can replay.

    federation {...}               rules, seed and how it began, as JSON
    > now {...}                    an event, as JSON
    <     {...}                    an effect of it
    ! ...                          the coordinator was killed: only its journal is left
    # ...                          a comment

`replay` feeds it to the machine as it is now, and gives the promise that is broken, or None. That a
federation never finishes is a promise of the whole world: its seed plays it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from folkmoot.core import federation
from folkmoot.core.federation import Rules, State
from folkmoot.core.federation import messages as m
from folkmoot.simulate.federation.invariants import broken_promises

MARK = "federation "
Journal = Sequence[tuple[int, m.AnyEvent]]
_encode = msgspec.json.Encoder().encode


class Begun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What everything after it follows from."""

    rules: Rules
    initial: bool
    seed: int

    def state(self) -> State:
        return federation.create(self.rules, initial=self.initial)


def head(begun: Begun) -> str:
    return MARK + _encode(begun).decode()


def entry(now: int, event: m.AnyEvent, effects: Sequence[m.Effect]) -> Iterator[str]:
    yield f"> {now} {_encode(event).decode()}"
    yield from (f"<     {_encode(effect).decode()}" for effect in effects)


def replay_federation(transcript: str) -> str | None:
    """The promise that the machine breaks on these events, if it still does."""
    begun, lines = _parse(transcript)
    state, journal = begun.state(), list[tuple[int, m.AnyEvent]]()
    for line in lines:
        if line is None:
            if promise := forgetful(begun, journal, state):
                return promise
            continue
        after, effects = federation.apply(state, line[1], line[0], begun.seed)
        if broken := broken_promises(state, line[1], after, effects):
            return broken[0]
        if after is not state:
            journal.append(line)
        state = after
    return None


def forgetful(begun: Begun, journal: Journal, state: State) -> str:
    """A promise about a coordinator that is killed, if it is broken."""
    again = begun.state()
    for now, event in journal:
        again, _ = federation.apply(again, event, now, begun.seed)
    if federation.encode(again) == federation.encode(state):
        return ""
    return "the journal gives another state than the one that was lost"


def _parse(text: str) -> tuple[Begun, list[tuple[int, m.AnyEvent] | None]]:
    """How it began; then events with their times, and None where the coordinator was killed."""
    begun, lines = None, list[tuple[int, m.AnyEvent] | None]()
    for line in map(str.strip, text.strip().splitlines()):
        mark, _, rest = line.partition(" ")
        if mark == MARK.strip():
            begun = msgspec.json.decode(rest, type=Begun)
        elif mark == ">":
            now, _, event = rest.partition(" ")
            lines.append((int(now), msgspec.json.decode(event, type=m.AnyEvent)))
        elif mark == "!":
            lines.append(None)
        elif mark not in ("<", "#", ""):
            raise ValueError(
                f"a federation's transcript has lines with federation, >, <, ! or #, not {mark!r}"
            )
    if begun is None:
        raise ValueError("a federation's transcript needs a line 'federation {...}'")
    return begun, lines
