"""What a store without transactions does one after the other."""

from collections.abc import Sequence

from folkmoot.authority.store.kv import Store, Wakeup


def move(store: Store, key: str, expected: bytes, desired: bytes, before: str, after: str) -> bool:
    """As `Store.move`."""
    if before and store.get(before) != expected:
        store.set(before, expected)
    if store.compare_set(key, expected, desired) != desired:
        return False
    store.set(after, desired)
    return True


def compare_set_then_set(
    store: Store, key: str, expected: bytes, desired: bytes, others: Sequence[str], value: bytes
) -> bytes | None:
    """As `Store.compare_set_then_set`."""
    found = store.compare_set(key, expected, desired)
    if found == desired:
        set_all(store, others, value)
    return found


def set_all(store: Store, keys: Sequence[str], value: bytes) -> None:
    for key in keys:
        store.set(key, value)


def appended(
    store: Store, found: bytes | None, desired: bytes, notes: bytes, wakeup: Wakeup | None
) -> tuple[bytes | None, ...]:
    """The end of `Store.compare_set_and_append`: wait if it is worth it."""
    if wakeup is None or found != desired or not wakeup.worth(notes):
        return found, notes
    value = store.wait(wakeup.key, wakeup.seconds, wakeup.then)
    return found, notes, b"" if value is not None and not wakeup.then else value
