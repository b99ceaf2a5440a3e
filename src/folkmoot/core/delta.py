"""The difference of two frozen values: what an authority sends instead of a whole state.

States share what did not change, so a difference is found by comparing objects first: it costs
what changed, not what is there. `patch(old, diff(old, new)) == new` for any two values of one
struct type. A difference is plain data (lists, dicts, bytes …) that msgpack carries; `patch` trusts
its shape as little as any other message and raises `DeltaError` when it does not fit.

A tuple is told in pieces: new items, or a stretch of the old ones that stay or all change in the
same way. So a roster of thousands that goes on with another model is one piece.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

NEW, FIELDS, PIECES = 0, 1, 2
# The piece of items that stay as they are.
SAME = None


class DeltaError(ValueError):
    """A difference that does not fit the value it is applied to."""


def diff(old: T, new: T) -> dict[str, Any]:
    """The fields of `new` that are not those of `old`."""
    changes = {}
    for name in new.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        if before is not after and before != after:
            changes[name] = _change(before, after)
    return changes


def _change(before: Any, after: Any) -> list[Any]:
    if isinstance(after, msgspec.Struct) and type(before) is type(after):
        return [FIELDS, diff(before, after)]
    if isinstance(after, tuple) and isinstance(before, tuple):
        return [PIECES, _pieces(before, after)]
    return [NEW, _plain(after)]


def _pieces(before: tuple[Any, ...], after: tuple[Any, ...]) -> list[list[Any]]:
    """[[items]] that are new and [start, stop, change] of old ones, in the order of `after`."""
    pieces: list[list[Any]] = []
    for item, place in zip(after, _places(before, after), strict=True):
        last = pieces[-1] if pieces else []
        if place is None:
            if len(last) != 1:
                pieces.append(last := [[]])
            last[0].append(_plain(item))
            continue
        old = before[place]
        change = SAME if old is item or old == item else _change(old, item)
        if len(last) == 3 and last[1] == place and last[2] == change:
            last[1] += 1
        else:
            pieces.append([place, place + 1, change])
    return pieces


def _places(before: tuple[Any, ...], after: tuple[Any, ...]) -> Iterator[int | None]:
    """Where in `before` each item of `after` stood, ever further on; None for a new one.

    A record is known by its `id`. Other tuples lose items in front and get new ones behind.
    """
    if after and hasattr(after[0], "id"):
        known = {item.id: place for place, item in enumerate(before)}
        last = -1
        for item in after:
            place = known.get(item.id, -1)
            yield place if place > last else None
            last = max(last, place)
        return
    lost = next((i for i, x in enumerate(before) if after and (x is after[0] or x == after[0])), 0)
    for place in range(lost, lost + len(after)):
        yield place if place < len(before) else None


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))


def patch(old: T, changes: dict[str, Any]) -> T:
    """`old` with the changes of a `diff`."""
    types = _types(type(old))
    try:
        values = {
            name: _apply(getattr(old, name), change, types[name])
            for name, change in changes.items()
        }
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise DeltaError(f"the change does not fit a {type(old).__name__}: {error}") from error
    return msgspec.structs.replace(old, **values)


@cache
def _types(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(struct)}


def _apply(before: Any, change: list[Any], into: Any) -> Any:
    kind, what = change
    if kind == FIELDS:
        return patch(before, what)
    if kind == NEW:
        return msgspec.convert(what, into)
    if kind == PIECES:
        return _joined(before, what, _item(into))
    raise DeltaError(f"there is no change of kind {kind!r}")


def _joined(before: tuple[Any, ...], pieces: list[list[Any]], into: Any) -> tuple[Any, ...]:
    items: list[Any] = []
    end = 0
    for piece in pieces:
        if len(piece) == 1:
            items += [msgspec.convert(item, into) for item in piece[0]]
            continue
        start, stop, change = piece
        # In order and never twice: a short message must not make a long tuple.
        if not end <= start < stop <= len(before):
            raise DeltaError(f"items {start} to {stop} are not among the {len(before)} known ones")
        end = stop
        kept = before[start:stop]
        items += kept if change is SAME else [_apply(item, change, into) for item in kept]
    return tuple(items)


def _item(into: Any) -> Any:
    """The type of the items, where the type is a tuple or may be one."""
    for choice in (into, *get_args(into)):
        if get_origin(choice) is tuple:
            return get_args(choice)[0]
    raise DeltaError(f"pieces do not make a {into}")
