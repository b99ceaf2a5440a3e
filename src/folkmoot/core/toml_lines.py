"""The line of every key in a TOML text, which `tomllib` does not keep and a user needs.

The text is known to be valid, so this only has to find its way: past strings, comments and
brackets, noting each key, each table, and each element of an array by its number.
"""

import re
import tomllib

Path = tuple[str | int, ...]
"""Keys, and the numbers of elements of arrays."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}#\n]*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\])*"|\'[^\']*\'', re.DOTALL
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def key_lines(text: str) -> dict[Path, int]:
    """Where each path begins, counted from line 1; the first place counts."""
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Path, int] = {}
        self.arrays: dict[Path, int] = {}  # arrays of tables, and the number of the newest

    def scan(self) -> dict[Path, int]:
        section: Path = ()
        self.blank()
        while self.at < len(self.text):
            if self.take("["):
                section = self.header()
            else:
                self.pair(section)
            self.blank()
        return self.lines

    def header(self) -> Path:
        many = self.take("[")
        start = self.at
        section: Path = ()
        keys = self.key()
        for depth, key in enumerate(keys, 1):
            section = (*section, key)
            if many and depth == len(keys):
                self.arrays[section] = self.arrays.get(section, -1) + 1
            if section in self.arrays:
                self.note(section, start)
                section = (*section, self.arrays[section])
            self.note(section, start)
        self.take("]]" if many else "]")
        return section

    def pair(self, section: Path) -> None:
        start = self.at
        path = section
        for key in self.key():
            path = (*path, key)
            self.note(path, start)
        self.take("=")
        self.blank()
        self.value(path)

    def value(self, path: Path) -> None:
        if self.take("["):
            self.elements(path)
        elif self.take("{"):
            self.inline(path)
        elif string := _STRING.match(self.text, self.at):
            self.at = string.end()
        else:
            self.match(_SCALAR)

    def elements(self, path: Path) -> None:
        number = 0
        self.blank()
        while not self.take("]"):
            self.note((*path, number), self.at)
            self.value((*path, number))
            self.blank()
            self.take(",")
            self.blank()
            number += 1

    def inline(self, path: Path) -> None:
        self.blank()
        while not self.take("}"):
            self.pair(path)
            self.blank()
            self.take(",")
            self.blank()

    def key(self) -> list[str]:
        """A dotted key, as its parts."""
        parts: list[str] = []
        while True:
            self.blank()
            if string := _STRING.match(self.text, self.at):
                self.at = string.end()
                parts += tomllib.loads(f"{string.group()} = 0")  # with what escapes stand for
            else:
                parts.append(self.match(_BARE))
            self.blank()
            if not self.take("."):
                return parts

    def note(self, path: Path, at: int) -> None:
        self.lines.setdefault(path, self.text.count("\n", 0, at) + 1)

    def blank(self) -> None:
        self.match(_BLANK)

    def match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise ValueError(f"line {self.text.count(chr(10), 0, self.at) + 1} is not valid TOML")
        self.at = found.end()
        return found.group()

    def take(self, token: str) -> bool:
        found = self.text.startswith(token, self.at)
        self.at += len(token) if found else 0
        return found
