"""A failing world as text that a test can replay: events in, effects out, and the facts between.

run {...}                      the machine, and what it was created from, as JSON
only name                      check this invariant alone: events were left out
> now seed {...}               an event, as JSON
<     {...}                    an effect of it
* {...}                        a fact about the world
# ...                          a comment
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from folkmoot.simulate.audit import Audit, Input, Log, Violation

_encode = msgspec.json.Encoder().encode


@dataclass
class Transcript:
    """What was said and done to a machine, in order."""

    audit_type: type[Audit[Any, Any]]
    config: msgspec.Struct
    log: Log
    title: str = ""
    only: str = ""

    def __str__(self) -> str:
        lines = [f"# {self.title}", f"{self.audit_type.name} {_json(self.config)}"]
        lines += [f"only {self.only}"] if self.only else []
        for entry in self.log:
            if isinstance(entry, Input):
                lines.append(f"> {entry.now} {entry.seed} {_json(entry.event)}")
                lines += [f"<     {_json(effect)}" for effect in entry.effects]
            else:
                lines.append(f"* {_json(entry)}")
        return "\n".join(lines)

    def replay(self) -> tuple[Log, Violation | None]:
        """Feed it to the machine as it is now: what was fed, and the violation it ends in."""
        audit = self.audit_type(self.config, self.only)
        try:
            for entry in self.log:
                if isinstance(entry, Input):
                    audit.submit(entry.now, entry.seed, entry.event)
                else:
                    audit.tell(entry)
        except Violation as violation:
            return audit.log, violation
        return audit.log, None


def parse(text: str, audit_types: Mapping[str, type[Audit[Any, Any]]]) -> Transcript:
    """A transcript from its text; effects are for people and are found again by replaying."""
    found: Transcript | None = None
    title = ""
    for line in map(str.strip, text.strip().splitlines()):
        mark, _, rest = line.partition(" ")
        if mark == "#":
            title = title or rest
        elif mark in audit_types:
            kind = audit_types[mark]
            found = Transcript(kind, _decoder(kind.config_type).decode(rest), [], title)
        elif mark not in ("only", ">", "<", "*", ""):
            marks = ", ".join([*sorted(audit_types), "only, >, <, * or #"])
            raise ValueError(f"a transcript's lines begin with {marks}, not {mark!r}")
        elif found is not None:
            _read(found, mark, rest)
    if found is None:
        names = " or ".join(f"'{name} {{...}}'" for name in sorted(audit_types))
        raise ValueError(f"a transcript needs a line {names} with the configuration")
    return found


def _read(transcript: Transcript, mark: str, rest: str) -> None:
    kind = transcript.audit_type
    if mark == "only":
        transcript.only = rest
    elif mark == ">":
        now, seed, event = rest.split(" ", 2)
        decoded = _decoder(kind.machine.AnyEvent).decode(event)
        transcript.log.append(Input(int(now), int(seed), decoded, ()))
    elif mark == "*":
        transcript.log.append(_decoder(kind.facts).decode(rest))


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def _json(value: msgspec.Struct) -> str:
    return _encode(value).decode()
