"""Strict TOML into frozen structs: a bad file lists all its problems at once.

Every problem names its key, its line, the reason, and for an unknown key the nearest known one.
A struct may add rules of its own with a method `rules(self) -> Iterable[Broken]`; they run
together with the type checks, on every field that decoded. Pure: text in, struct out.
"""

import difflib
import re
import tomllib
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

T = TypeVar("T")
Path = tuple[str, ...]

_HEADER = re.compile(r"\s*\[(\[?)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=""")
_SYNTAX_LINE = re.compile(r"\(at line (\d+)")


class Broken(NamedTuple):
    """A rule that does not hold: the field it is about, and why."""

    field: str
    reason: str


class Problem(NamedTuple):
    """One thing wrong with a file."""

    key: str
    line: int
    reason: str
    nearest: str | None = None

    def __str__(self) -> str:
        hint = f" (did you mean '{self.nearest}'?)" if self.nearest else ""
        return f"line {self.line}: {self.key}: {self.reason}{hint}"


class ConfigError(ValueError):
    """Everything wrong with a file, in the order of its lines."""

    def __init__(self, name: str, problems: list[Problem]) -> None:
        self.name = name
        self.problems = tuple(sorted(problems, key=lambda p: (p.line, p.key)))
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{name} has {count}:\n{lines}")


def decode(text: str, into: type[T], name: str = "run.toml") -> T:
    """Decode `text` into the struct `into`, or raise `ConfigError` with every problem."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _SYNTAX_LINE.search(str(error))
        line = int(found.group(1)) if found else text.count("\n") + 1
        raise ConfigError(name, [Problem("(syntax)", line, f"not TOML: {error}")]) from None
    walker = _Walker(_locate(text))
    decoded = walker.struct((), table, into)
    if walker.problems:
        raise ConfigError(name, walker.problems)
    return decoded  # type: ignore[no-any-return]


class _Walker:
    """Decodes field by field and goes on after a bad one, so that all are found."""

    def __init__(self, lines: Mapping[Path, int]) -> None:
        self.lines = lines
        self.problems: list[Problem] = []

    def report(self, path: Path, reason: str, nearest: str | None = None) -> None:
        at = path
        while at and at not in self.lines:
            at = at[:-1]
        self.problems.append(
            Problem(".".join(path) or "(file)", self.lines.get(at, 1), reason, nearest)
        )

    def struct(self, path: Path, table: Mapping[str, Any], into: Any) -> Any:
        fields = {f.encode_name: f for f in msgspec.structs.fields(into)}
        tag_field = into.__struct_config__.tag_field
        for key in table:
            if key not in fields and key != tag_field:
                close = difflib.get_close_matches(key, fields, n=1, cutoff=0.5)
                self.report((*path, key), "unknown key", close[0] if close else None)
        before = len(self.problems)
        values: dict[str, Any] = {}
        bad = set()
        for key, field in fields.items():
            if key not in table:
                if field.required:
                    self.report((*path, key), "required, and missing")
                    bad.add(key)
                continue
            at = len(self.problems)
            value = self.value((*path, key), table[key], field.type)
            if len(self.problems) > at:
                bad.add(key)
            else:
                values[field.name] = value
        if any(fields[key].required for key in bad):
            return None
        built = into(**values)
        for field_name, reason in _rules(built):
            if field_name not in bad:
                self.report((*path, field_name), reason)
        return built if len(self.problems) == before else None

    def value(self, path: Path, value: Any, into: Any) -> Any:
        if isinstance(value, dict) and (choice := self._choice(path, value, into)) is not None:
            return self.struct(path, value, choice)
        if isinstance(value, dict) and _structs(into):
            return None  # the choice was reported
        try:
            return msgspec.convert(value, into)
        except msgspec.ValidationError as error:
            reason = str(error).split(" - at `")[0]
            self.report(path, f"{reason[0].lower()}{reason[1:]}, got {value!r}")
            return None

    def _choice(self, path: Path, table: Mapping[str, Any], into: Any) -> Any:
        """The struct that a table decodes into: the only one, or the one its tag names."""
        structs = _structs(into)
        if len(structs) <= 1:
            return structs[0] if structs else None
        tag_field = structs[0].__struct_config__.tag_field
        known = {str(s.__struct_config__.tag): s for s in structs}
        tag = table.get(tag_field)
        if tag in known:
            return known[tag]
        close = difflib.get_close_matches(str(tag), known, n=1, cutoff=0.5)
        reason = "required, and missing" if tag is None else f"unknown value {tag!r}"
        self.report(
            (*path, str(tag_field)),
            f"{reason}; expected one of {', '.join(sorted(known))}",
            close[0] if close else None,
        )
        return None


def _rules(built: Any) -> Iterator[Broken]:
    if hasattr(built, "rules"):
        yield from built.rules()


def _structs(into: Any) -> list[Any]:
    if get_origin(into) in (Union, types.UnionType):
        return [a for a in get_args(into) if _is_struct(a)]
    return [into] if _is_struct(into) else []


def _is_struct(into: Any) -> bool:
    return isinstance(into, type) and issubclass(into, msgspec.Struct)


def _locate(text: str) -> dict[Path, int]:
    """The line of every header and key. tomllib keeps none, and a user needs them."""
    lines: dict[Path, int] = {}
    section: Path = ()
    repeats: dict[Path, int] = {}
    closing = ""  # what ends the multi-line value we are inside of, if any
    for number, line in enumerate(text.splitlines(), 1):
        if closing:
            closing = "" if closing in line else closing
            continue
        if header := _HEADER.match(line):
            section = _split(header.group(2))
            if header.group(1):
                repeats[section] = repeats.get(section, -1) + 1
                section = (*section, str(repeats[section]))
            lines.setdefault(section, number)
        elif key := _KEY.match(line):
            path = (*section, *_split(key.group(1)))
            for depth in range(len(section) + 1, len(path) + 1):
                lines.setdefault(path[:depth], number)
            closing = _opened(line[key.end() :])
    return lines


def _split(dotted: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _opened(value: str) -> str:
    value = value.strip()
    for quote in ('"""', "'''"):
        if value.startswith(quote) and quote not in value[3:]:
            return quote
    if value.startswith("[") and value.count("[") > value.count("]"):
        return "]"
    return ""
