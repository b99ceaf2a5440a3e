"""A store as a value: what each request of a rank does to it, and what it answers."""

from folkmoot.core.iteration import messages as m

Store = dict[str, bytes]
Values = tuple[bytes | None, ...]


def perform(store: Store, request: m.Request) -> tuple[Store, Values]:
    """What a store becomes and answers; the very same one when nothing changes."""
    match request:
        case m.GetMany(names):
            return store, tuple(map(store.get, names))
        case m.Wait(key):
            return store, (store.get(key),)
        case m.Set(key, value):
            return {**store, key: value}, (value,)
        case m.Add(key, amount):
            total = b"%d" % (int(store.get(key, b"0")) + amount)
            return {**store, key: total}, (total,)
        case m.Arrive(key, expected, desired, counter):
            after, (found,) = perform(store, m.CompareSet(key, expected, desired))
            counted, (count,) = perform(after, m.Add(counter, 1))
            return counted, (found, count)
        case m.CompareSet(key, expected, desired):
            if store.get(key, b"") == expected:
                return {**store, key: desired}, (desired,)
            return store, (store.get(key),)
