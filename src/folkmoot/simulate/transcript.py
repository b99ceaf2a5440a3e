"""A failing world as text that a test can replay: messages in, effects out, and the facts between.

    run {...}                      the configuration, as JSON
    only name                      check this invariant alone: messages were left out
    > now seed {...}               a message, as JSON
    <     {...}                    an effect of it
    * {...}                        a fact about the world
    # ...                          a comment

`replay` feeds it to the machine as it is now, and gives the violation that follows, or None.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import Run
from folkmoot.simulate.federation.transcript import MARK, replay_federation
from folkmoot.simulate.run.audit import AnyFact, Audit, Input, Violation

_encode = msgspec.json.Encoder().encode
_message = msgspec.json.Decoder(m.AnyEvent)
_fact = msgspec.json.Decoder(AnyFact)
_run = msgspec.json.Decoder(Run)


class Transcript:
    """What was said and done, in order."""

    def __init__(
        self, run: Run, log: Iterable[Input | AnyFact], title: str = "", only: str = ""
    ) -> None:
        self.run = run
        self.only = only
        self.log = list(log)
        self.title = title

    @classmethod
    def of(cls, audit: Audit, seed: int, violation: Violation | None) -> Transcript:
        return cls(audit.run, audit.log, f"seed {seed}, violated {violation}")

    def __str__(self) -> str:
        lines = [f"# {self.title}", f"run {_json(self.run)}"]
        lines += [f"only {self.only}"] if self.only else []
        for entry in self.log:
            if isinstance(entry, Input):
                lines.append(f"> {entry.now} {entry.seed} {_json(entry.message)}")
                lines += [f"<     {_json(effect)}" for effect in entry.effects]
            else:
                lines.append(f"* {_json(entry)}")
        return "\n".join(lines)


def parse(text: str) -> Transcript:
    """A transcript from its text; effects are for people and are found again by replaying."""
    run, only = None, ""
    log: list[Input | AnyFact] = []
    for line in map(str.strip, text.strip().splitlines()):
        mark, _, rest = line.partition(" ")
        if mark == "run":
            run = _run.decode(rest)
        elif mark == "only":
            only = rest
        elif mark == ">":
            now, seed, message = rest.split(" ", 2)
            log.append(Input(int(now), int(seed), _message.decode(message), ()))
        elif mark == "*":
            log.append(_fact.decode(rest))
        elif mark not in ("<", "#", ""):
            raise ValueError(
                f"a transcript's lines begin with run, only, >, <, * or #, not {mark!r}"
            )
    if run is None:
        raise ValueError("a transcript needs a line 'run {...}' with the configuration")
    return Transcript(run, log, only=only)


def replay(transcript: str | Transcript) -> Violation | str | None:
    """Feed a transcript to the machine; the violation it ends in, if it still does.

    Of a federation's transcript, the promise that is broken.
    """
    if isinstance(transcript, str) and any(map(_is_federation, transcript.splitlines())):
        return replay_federation(transcript)
    return replay_run(transcript)


def _is_federation(line: str) -> bool:
    return line.strip().startswith(MARK)


def replay_run(transcript: str | Transcript) -> Violation | None:
    """Feed a run's transcript to the machine of a run."""
    found = parse(transcript) if isinstance(transcript, str) else transcript
    audit = Audit(found.run, found.only)
    try:
        for entry in found.log:
            if isinstance(entry, Input):
                audit.submit(entry.now, entry.seed, entry.message)
            else:
                audit.tell(entry)
    except Violation as violation:
        violation.log = audit.log
        return violation
    return None


def _json(value: msgspec.Struct) -> str:
    return _encode(value).decode()
