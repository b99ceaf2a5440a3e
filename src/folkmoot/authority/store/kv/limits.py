"""What every store refuses, in the same words, before anything is sent."""

import re

from folkmoot.authority.store.kv import MAX_VALUE, StoreError, WrongType

# A key is a name, not a place for data; this is far below what any store takes.
MAX_KEY = 1024
# A store counts in 64 bits.
LOWEST, HIGHEST = -(2**63), 2**63 - 1
_NUMBER = re.compile(rb"-?[0-9]{1,19}")
_FOREIGN = "another program uses this key: give this job a name of its own, or delete the key"


def check_key(key: str) -> bytes:
    """Its bytes."""
    name = key.encode()
    if not 0 < len(name) <= MAX_KEY:
        raise StoreError(f"a key has 1 to {MAX_KEY} bytes; {key[:40]!r} has {len(name)}")
    return name


def check_value(key: str, value: bytes) -> None:
    if not value:
        raise StoreError(f"the value of {key} is empty; that stands for a missing one: use delete")
    if len(value) > MAX_VALUE:
        raise too_long(key, len(value))


def too_long(key: str, size: int) -> WrongType:
    return WrongType(
        f"{key}: a value of {size} bytes, where a store keeps at most {MAX_VALUE}; "
        "keep what is large in a bucket or a file, and its name in the store"
    )


def too_long_there(key: str, size: int) -> WrongType:
    """Nobody of us can have written it."""
    return WrongType(
        f"{key} holds a value of {size} bytes, where a store keeps at most {MAX_VALUE}; {_FOREIGN}"
    )


def sum_at(key: str, value: bytes | None, amount: int) -> int:
    """What `add` makes of the value there."""
    if not LOWEST <= amount <= HIGHEST:
        raise StoreError(f"{key}: {amount} is not a number of 64 bits; add a smaller one")
    if value is None:
        return amount
    if not _NUMBER.fullmatch(value):
        raise WrongType(f"{key} holds {value[:40]!r}, not a number to add to; {_FOREIGN}")
    total = int(value) + amount
    if not LOWEST <= total <= HIGHEST:
        raise WrongType(f"{key} holds {int(value)}; with {amount} it would exceed 64 bits")
    return total
