"""The difference of two frozen values: what an authority sends instead of a whole state.

States share what did not change, so a difference is found by comparing objects first: it costs
what changed, not what is there. `patch(old, diff(old, new)) == new` for any two values of one
struct type. A difference is plain data (lists, dicts, bytes …) that msgpack carries; `patch` trusts
its shape as little as any other message and raises `DeltaError` when it does not fit.
"""

from typing import Any, TypeVar, get_args, get_origin

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

NEW, FIELDS, SLID = 0, 1, 2


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
        return _slid(before, after)
    return [NEW, _plain(after)]


def _slid(before: tuple[Any, ...], after: tuple[Any, ...]) -> list[Any]:
    """A tuple lost items in front, had some replaced, and got new ones behind."""
    lost = next((i for i, x in enumerate(before) if after and (x is after[0] or x == after[0])), 0)
    kept = before[lost : lost + len(after)]
    changed = [
        [i, _change(b, a)]
        for i, (b, a) in enumerate(zip(kept, after[: len(kept)], strict=True))
        if b is not a and b != a
    ]
    return [SLID, lost, len(kept), changed, [_plain(x) for x in after[len(kept) :]]]


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))


def patch(old: T, changes: dict[str, Any]) -> T:
    """`old` with the changes of a `diff`."""
    types = {field.name: field.type for field in msgspec.structs.fields(old)}
    try:
        values = {
            name: _apply(getattr(old, name), change, types[name])
            for name, change in changes.items()
        }
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise DeltaError(f"the change does not fit a {type(old).__name__}: {error}") from error
    return msgspec.structs.replace(old, **values)


def _apply(before: Any, change: list[Any], into: Any) -> Any:
    kind, *rest = change
    if kind == FIELDS:
        return patch(before, rest[0])
    if kind == NEW:
        return msgspec.convert(rest[0], into)
    lost, kept, changed, more = rest
    item = _item(into)
    items = list(before[lost : lost + kept])
    for i, inner in changed:
        items[i] = _apply(items[i], inner, item)
    return (*items, *(msgspec.convert(x, item) for x in more))


def _item(into: Any) -> Any:
    """The type of a tuple's items."""
    if get_origin(into) is tuple:
        return get_args(into)[0]
    return next(get_args(a)[0] for a in get_args(into) if get_origin(a) is tuple)
