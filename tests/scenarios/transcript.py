"""Transcripts: what was said to a machine, and exactly what it answered.

A transcript is a text of blocks. A line that starts with `> ` is a command; the indented lines
after it are the machine's answer; `#` lines are for the reader. `check` says a transcript and
shows a diff when the machine answers differently. To accept new answers, look at the diff, then
run the tests with FOLKMOOT_REWRITE=1.

A machine's transcripts need a folder and a subclass of `Words`, named in `test_transcripts.py`.
"""

import difflib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from folkmoot.core.machine import Effect, Event, Machine, Outcome, Refused, StateChanged, Tick

SEED = 42


def check(path: Path, execute: Callable[[str], list[str]]) -> None:
    """Say the transcript at `path`; `execute` gives the answer to one command, line by line."""
    written = path.read_text()
    answered = replay(written, execute)
    if answered == written:
        return
    if os.environ.get("FOLKMOOT_REWRITE"):
        path.write_text(answered)
        return
    diff = difflib.unified_diff(
        written.splitlines(), answered.splitlines(), "written", "answered", lineterm="", n=4
    )
    raise AssertionError(f"{path.name}: the machine answers differently\n" + "\n".join(diff))


def read_value(text: str) -> Any:
    """A word of a command as JSON, or as it stands."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def replay(text: str, execute: Callable[[str], list[str]]) -> str:
    """The transcript with the answers that the machine gives now."""
    lines = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines.append(line)
            lines += [f"    {answer}" for answer in execute(line[2:])]
        elif not line.startswith("    "):
            lines.append(line)
    return "\n".join(lines) + "\n"


class Words:
    """The words of one machine, and one machine to say them to. Of the commands

        > run delay=1        > 5 join a address=x        > show a

    the first calls `create_run(delay="1")`, which gives a state; the second, at 5 s, is the event
    that `say_join("a", address="x")` gives; the third is a question: `ask_show("a")` gives the
    lines of the answer. `describe` gives the words for an effect.
    """

    machine: ClassVar[Machine[Any]]
    codes: ClassVar[Iterable[str]] = ()  # of all its refusals
    silence: ClassVar[list[str]] = []  # the answer when there is no effect

    def __init__(self) -> None:
        self.state: Any = None

    def __call__(self, command: str) -> list[str]:
        first, *rest = command.split()
        if first[0].isdecimal():
            verb, *rest = rest
            words, named = _arguments(rest)
            seed = int(named.pop("seed", SEED))
            event = getattr(self, f"say_{verb}")(*words, **named)
            return [self.line(e) for e in self.apply(event, _ms(first), seed)] or self.silence
        words, named = _arguments(rest)
        if create := getattr(self, f"create_{first}", None):
            self.state = create(*words, **named)
            return []
        return getattr(self, f"ask_{first}")(*words, **named)

    def apply(self, event: Event, now: int, seed: int) -> tuple[Effect, ...]:
        outcome = self.checked(self.state, event, now, seed)
        self.state = outcome.state
        return outcome.effects

    def checked(self, before: Any, event: Event, now: int, seed: int) -> Outcome[Any]:
        """What the machine makes of an event; it may be refused, and must be encoded whole."""
        outcome = self.machine.apply(before, event, now, seed)
        if outcome.refused:
            assert outcome.state is before, "a refused event must change nothing"
        assert self.machine.decode(self.machine.encode(outcome.state)) == outcome.state
        return outcome

    def line(self, effect: Effect) -> str:
        match effect:
            case Refused(code, reason):
                return f"refused, {code}: {reason}"
            case StateChanged(before, after, why):
                return f"{before} -> {after}: {why}"
        return self.describe(effect)

    def describe(self, effect: Effect) -> str:
        raise TypeError(f"no words for {effect}")

    def say_tick(self) -> Tick:
        return Tick()

    def ask_due(self, now: str) -> list[str]:
        at = self.machine.next_tick(self.state, _ms(now))
        return ["never" if at is None else f"{at / 1000:g}"]


def _ms(seconds: str) -> int:
    return round(float(seconds) * 1000)


def _arguments(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """The plain words and the `key=value` words of a command."""
    plain = [word for word in words if "=" not in word]
    named = dict(word.split("=", 1) for word in words if "=" in word)
    return plain, named
