"""The C header of the layout: the same records, with their sizes and offsets asserted."""

from collections.abc import Iterator
from enum import IntEnum

from folkmoot.authority.solana import layout
from folkmoot.core.coordinator.conditions import CLOSING_TRIES
from folkmoot.core.coordinator.newcomers import GRACE, PART_OF_EPOCH

_CONSTANTS = (
    "VERSION", "RUN_MAGIC", "GRANT_MAGIC", "CLIENTS", "SLOTS", "WITNESSES", "ROUNDS", "OWED",
    "SPANS", "EXPELLED", "LEAVING", "ADDRESS", "ROOT", "LOCATION", "BLOOM", "RUN_ID", "RUN_FILE",
    "NAMED", "GROWTH", "MASK", "UNKNOWN_PLACE", "BEFORE_ROUNDS",
)  # fmt: skip


def header() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "// Made from layout.py."
    yield "#pragma once"
    for name in _CONSTANTS:
        yield f"#define {name} {getattr(layout, name)}ull"
    yield f"#define CLOSING_TRIES {CLOSING_TRIES}ull"
    yield f"#define NEWCOMERS_GRACE {GRACE}ull"
    yield f"#define PART_OF_EPOCH {PART_OF_EPOCH}ull"
    yield from _numbered("PHASE", ("Unconfigured", *layout.PHASES[1:]))
    yield from _numbered("SOURCE", layout.SOURCES)
    yield from _numbered("LEFT", ("No", *(str(left) for left in layout.LEFT[1:])))
    for name, number in layout.REASONS.items():
        yield f"#define REFUSE_{name} {number}ull"
    for name, (number, _) in layout.ERRORS.items():
        yield f"#define ERROR_{name} {number}ull"
    yield from _tags(layout.Tag)
    for name, fields in layout.RECORDS.items():
        yield from _struct(name, fields)


def _numbered(prefix: str, names: tuple[str, ...]) -> Iterator[str]:
    for number, name in enumerate(names):
        yield f"#define {prefix}_{name} {number}ull"


def _tags(tags: type[IntEnum]) -> Iterator[str]:
    for tag in tags:
        yield f"#define TAG_{tag.name} {tag.value}ull"


def _struct(name: str, fields: layout.Fields) -> Iterator[str]:
    yield "typedef struct {"
    offset, checks = 0, []
    for field, (kind, count) in fields.items():
        yield f"    {layout.c_type(kind)} {field}{f'[{count}]' if count else ''};"
        checks.append(f'_Static_assert(__builtin_offsetof({name}, {field}) == {offset}, "");')
        offset += kind.itemsize * (count or 1)
    yield f"}} {name};"
    yield from checks
    yield f'_Static_assert(sizeof({name}) == {offset}, "");'
