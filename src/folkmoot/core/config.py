"""Strict TOML into frozen structs: a bad file lists all its problems at once.

Every problem names its key, its line, the reason, and for an unknown key the nearest known one.
Tables nest to any depth: in tables, inline, in arrays, under names of the user's own (`dict`), or
as one of several kinds told by a tag.
A struct may add rules of its own with a method `rules(self) -> Iterable[Broken]`; they run
together with the type checks, on every field that decoded. Pure: text in, struct out.
"""

import difflib
import json
import math
import re
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from folkmoot.core.toml_lines import Path, key_lines

T = TypeVar("T")

# In place of a required value that is bad or missing, so that the rules about others still run.
_STAND_INS: dict[Any, Any] = {int: 1, float: 1.0, str: "-", bool: False}
_SYNTAX_LINE = re.compile(r"\(at line (\d+)")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class _AnyName(str):
    """In a suggestion: the table of a name that the user chooses. No user can have written it."""

    __slots__ = ()


_ANY_NAME = _AnyName("<name>")


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
    walker = _Walker(key_lines(text), into)
    decoded = walker.struct((), table, into)
    if walker.problems:
        raise ConfigError(name, walker.problems)
    return decoded  # type: ignore[no-any-return]


def settle_floats(struct: msgspec.Struct) -> None:
    """For `__post_init__`: 5 and -0.0 in a float field become 5.0 and 0.0.

    They are equal as numbers and must be as bytes, wherever the struct was made.
    """
    for name in _float_fields(type(struct)):
        value = float(getattr(struct, name)) + 0.0
        msgspec.structs.force_setattr(struct, name, value)


@cache
def _float_fields(type_: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(type_) if field.type is float)


def all_broken(struct: msgspec.Struct, path: str = "") -> Iterator[Broken]:
    """The broken rules of a struct and of those in it, for one that was not read from a file."""
    for name, reason in _rules(struct):
        yield Broken(path + name, reason)
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if reason := _beyond(value):
            yield Broken(path + name, reason)
        for inner, part in _parts(path + name, value):
            if isinstance(part, msgspec.Struct):
                yield from all_broken(part, f"{inner}.")


def all_texts(struct: msgspec.Struct, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a struct and in those in it, with the path it is told by."""
    for name in struct.__struct_fields__:
        for inner, part in _parts(path + name, getattr(struct, name)):
            if isinstance(part, str):
                yield inner, part
            elif isinstance(part, msgspec.Struct):
                yield from all_texts(part, f"{inner}.")


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a field holds, each with the path it is told by."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _parts(path + _written_key(key), inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _parts(path, inner)
    else:
        yield path, value


def _beyond(value: Any) -> str:
    """What keeps a number from being the same everywhere, if anything does."""
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "must fit into 64 bits"
    return ""


class _Walker:
    """Decodes field by field and goes on after a bad one, so that all are found."""

    def __init__(self, lines: Mapping[Path, int], root: Any) -> None:
        self.lines = lines
        self.homes = dict(reversed(list(_homes((), root))))  # the first home of a key counts
        self.problems: list[Problem] = []

    def report(self, path: Path, reason: str, nearest: str | None = None) -> None:
        at = path
        while at and at not in self.lines:
            at = at[:-1]
        self.problems.append(Problem(_written(path), self.lines.get(at, 1), reason, nearest))

    def struct(self, path: Path, table: Mapping[str, Any], into: Any) -> Any:
        """The struct of a table; of a bad one, as much as its rules need, or None."""
        fields = {f.encode_name: f for f in msgspec.structs.fields(into)}
        self._unknown_keys(path, table, {*fields, into.__struct_config__.tag_field}, fields)
        values: dict[str, Any] = {}
        bad = set()
        for key, field in fields.items():
            before = len(self.problems)
            value = None
            if key in table:
                value = self.value((*path, key), table[key], field.type)
            elif field.required:
                self.report((*path, key), "required, and missing")
            if len(self.problems) > before:
                bad.add(key)
                value = _STAND_INS.get(field.type) if value is None else value
            if value is not None:
                values[field.name] = value
        if any(f.required and f.name not in values for f in fields.values()):
            return None
        built = into(**values)
        for name, reason in _rules(built):
            # A rule that compares with a bad field says nothing.
            if name not in bad and not any(key in reason for key in bad):
                self.report((*path, name), reason)
        return built

    def _unknown_keys(
        self, path: Path, table: Mapping[str, Any], known: set[str | None], fields: Iterable[str]
    ) -> None:
        for key in table:
            if key not in known:
                close = difflib.get_close_matches(key, fields, n=1, cutoff=0.5)
                home = self.homes.get(key)
                nearest = _written((*home, key)) if home is not None else "".join(close)
                self.report((*path, key), "unknown key", nearest or None)

    def value(self, path: Path, value: Any, into: Any) -> Any:
        into = _without_none(into)
        if isinstance(value, dict) and _structs(into):
            choice = self._choice(path, value, into)
            return None if choice is None else self.struct(path, value, choice)
        if isinstance(value, dict) and get_origin(into) is dict:
            return self._entries(path, value, *get_args(into))
        if isinstance(value, list) and (element := _element(into)) is not None:
            parts = [self.value((*path, k), part, element) for k, part in enumerate(value)]
            return get_origin(into)(part for part in parts if part is not None)
        return self._plain(path, value, into)

    def _entries(self, path: Path, table: Mapping[str, Any], name: Any, into: Any) -> Any:
        """A table whose keys are names: each entry is decoded as if it stood alone."""
        entries = {}
        for key, value in table.items():
            told = self._plain((*path, key), key, name)
            decoded = self.value((*path, key), value, into)
            if told is not None and decoded is not None:
                entries[told] = decoded
        return entries

    def _plain(self, path: Path, value: Any, into: Any) -> Any:
        try:
            converted = msgspec.convert(value, into)
            if reason := _beyond(converted):
                self.report(path, reason)
            return converted
        except msgspec.ValidationError as error:
            expected = str(error).split(" - at `")[0].split(", got ")[0].replace("`", "")
            self.report(path, f"{expected[0].lower()}{expected[1:]}, got {value!r}")
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


def _written(path: Path) -> str:
    """A path as a user would write it: data.sources[1].weight, roles."a.b".count."""
    text = "".join(f"[{part}]" if isinstance(part, int) else _written_key(part) for part in path)
    return text.removeprefix(".") or "(file)"


def _written_key(key: str) -> str:
    bare = _BARE_KEY.fullmatch(key) or isinstance(key, _AnyName)
    return f".{key}" if bare else f".{json.dumps(key, ensure_ascii=False)}"


def _homes(path: Path, into: Any) -> Iterator[tuple[str, Path]]:
    """(key, its table) for every key of `into`: one is easily put into the wrong table."""
    for field in msgspec.structs.fields(into):
        yield field.encode_name, path
        inner, kind = (*path, field.encode_name), _without_none(field.type)
        while get_origin(kind) is dict:
            inner, kind = (*inner, _ANY_NAME), _without_none(get_args(kind)[1])
        structs = _structs(kind)
        if len(structs) == 1:
            yield from _homes(inner, structs[0])


def _element(into: Any) -> Any:
    """What the elements of a list decode into, when they are tables; None for other types."""
    if get_origin(into) not in (list, tuple):
        return None
    element = get_args(into)[0]
    return element if _structs(element) or get_origin(element) is dict else None


def _without_none(into: Any) -> Any:
    """`X` of `X | None`; other types as they are."""
    if get_origin(into) not in (Union, types.UnionType):
        return into
    kinds = [a for a in get_args(into) if a is not types.NoneType]
    return kinds[0] if len(kinds) == 1 else into


def _rules(built: Any) -> Iterator[Broken]:
    if hasattr(built, "rules"):
        yield from built.rules()


def _structs(into: Any) -> list[Any]:
    if get_origin(into) in (Union, types.UnionType):
        return [a for a in get_args(into) if _is_struct(a)]
    return [into] if _is_struct(into) else []


def _is_struct(into: Any) -> bool:
    return isinstance(into, type) and issubclass(into, msgspec.Struct)
