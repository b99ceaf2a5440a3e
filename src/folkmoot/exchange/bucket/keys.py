"""Which keys, prefixes and ranges a bucket takes: equal on every kind of store."""

from folkmoot.exchange.bucket.errors import NotPossible


def checked_key(url: str, key: str) -> str:
    """A key is folder/name with no way out of the bucket, equal on every kind of store."""
    parts = key.split("/")
    if len(key) > 900 or any(part in ("", ".", "..") for part in parts):
        raise NotPossible(url, key[:80], "a key is 1 to 900 characters, with no empty or dot parts")
    if not key.isprintable() or any(mark in key for mark in "\\#?%*"):
        raise NotPossible(url, repr(key), "a key has no control characters and none of \\ # ? % *")
    if any(part.endswith((":", "|")) for part in parts):
        # A folder's store takes these for a drive of Windows, and looks for a file below it.
        raise NotPossible(url, key[:80], "no part of a key ends in : or |")
    return key


def checked_prefix(url: str, prefix: str) -> str | None:
    return checked_key(url, prefix.rstrip("/")) if prefix.rstrip("/") else None


def checked_range(url: str, key: str, start: int, length: int) -> None:
    checked_key(url, key)
    if start < 0 or length < 1:
        raise NotPossible(url, key, f"{length} bytes from {start} is not a range")
