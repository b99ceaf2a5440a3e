"""What a store without transactions does one after the other."""

from folkmoot.authority.store.kv import Store


def move(store: Store, key: str, expected: bytes, desired: bytes, before: str, after: str) -> bool:
    """As `Store.move`."""
    if before and store.get(before) != expected:
        store.set(before, expected)
    if store.compare_set(key, expected, desired) != desired:
        return False
    store.set(after, desired)
    return True
