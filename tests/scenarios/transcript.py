"""Transcripts: what was said to a machine, and exactly what it answered.

A transcript is a text of blocks. A line that starts with `> ` is a command; the indented lines
after it are the machine's answer; `#` lines are for the reader. `check` runs a transcript and
shows a diff when the machine answers differently. To accept new answers, look at the diff, then
run the tests with FOLKMOOT_REWRITE=1.
"""

import difflib
import os
from collections.abc import Callable
from pathlib import Path


def check(path: Path, execute: Callable[[str], list[str]]) -> None:
    """Run the transcript at `path`; `execute` gives the answer to one command, line by line."""
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


def arguments(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """The plain words and the `key=value` words of a command."""
    plain = [word for word in words if "=" not in word]
    named = dict(word.split("=", 1) for word in words if "=" in word)
    return plain, named
