"""A store as a value: what each request of a rank does to it, and what it answers."""

from typing import Any, NamedTuple

from folkmoot.core.iteration import messages as m

Store = dict[str, bytes]
Values = tuple[bytes | None, ...]


class AppendNote(NamedTuple):
    """Put a note on a list, and read it."""

    key: str
    note: bytes


def parts(request: Any, seen: Values = ()) -> tuple[Any, ...]:
    """The operations of a request, between which others may come, and its process die.

    As far as is known: some follow from what was answered to the first ones.
    """
    match request:
        case m.Arrive(key, expected, desired, arrived, note):
            return m.CompareSet(key, expected, desired), AppendNote(arrived, note)
        case m.Decide(key, expected, desired, wakeups):
            done = seen[:1] == (desired,)
            behind = [m.Set(wakeup, m.WOKEN) for wakeup in wakeups if done]
            return m.CompareSet(key, expected, desired), *behind
    return (request,)


def perform(store: Store, request: Any) -> tuple[Store, Values]:
    """What a store becomes and answers; the very same one when nothing changes."""
    values: Values = ()
    done = 0
    while done < len(todo := parts(request, values)):
        store, answer = _perform(store, todo[done])
        values, done = values + answer, done + 1
    return store, values


def _perform(store: Store, request: Any) -> tuple[Store, Values]:
    match request:
        case m.GetMany(names):
            return store, tuple(map(store.get, names))
        case m.Wait(key, _, then):
            return store, (store.get(then or key) if key in store else None,)
        case m.Set(key, value):
            return {**store, key: value}, (value,)
        case m.Add(key, amount):
            total = b"%d" % (int(store.get(key, b"0")) + amount)
            return {**store, key: total}, (total,)
        case AppendNote(key, note):
            # In any order, so in one: worlds that differ in nothing else are the same.
            notes = {*store.get(key, b"").split(b"],")[:-1], note[:-2]}
            listed = b"".join(x + b"]," for x in sorted(notes))
            return {**store, key: listed}, (listed,)
        case m.CompareSet(key, expected, desired):
            if store.get(key, b"") == expected:
                return {**store, key: desired}, (desired,)
            return store, (store.get(key),)
    raise TypeError(f"{request} is no request")
