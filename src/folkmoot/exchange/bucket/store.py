"""Which store a bucket's URL means, which keys it takes, and what can go wrong with it."""

import contextlib
import functools
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from obstore import exceptions
from obstore.store import HTTPStore, LocalStore, MemoryStore, from_url

READS = 5
P = ParamSpec("P")
T = TypeVar("T")


class BucketError(Exception):
    """The store could not do what was asked; trying again later may help."""

    def __init__(self, url: str, key: str, why: str) -> None:
        super().__init__(f"{url} [{key}]: {why}" if key else f"{url}: {why}")
        self.url, self.key, self.why = url, key, why


class Missing(BucketError):
    """No object has this key."""


class AccessDenied(BucketError):
    """The credentials do not allow this."""


class AlreadyExists(BucketError):
    """`create` was asked for, and another writer was first."""


class TooLarge(BucketError):
    """The object is larger than the caller's limit; nothing of it was read."""


class TooShort(BucketError):
    """The object ends before the range asked for."""


class BrokenOff(BucketError):
    """The answer ended before it was whole."""


class NotPossible(BucketError):
    """This kind of store cannot do this, or the key is not a valid one."""


def open_store(url: str, folder: Path | None, options: Any, patience: float) -> Any:
    if folder is not None:
        return LocalStore(folder, mkdir=True)
    if urlsplit(url).scheme == "memory":
        return MemoryStore()
    endpoint = options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL") or url
    # A whole transfer may take long; a stalled one is noticed by its silence.
    client: Any = {
        "connect_timeout": timedelta(seconds=min(5.0, patience)),
        "read_timeout": timedelta(seconds=patience),
        "timeout": timedelta(days=1),
    }
    # Who writes an endpoint without TLS means it; obstore would want it said twice.
    if endpoint.startswith("http://"):
        client["allow_http"] = True
    retry: Any = {
        "max_retries": 100,
        "retry_timeout": timedelta(seconds=patience),
        "backoff": {"max_backoff": timedelta(seconds=min(5.0, patience))},
    }
    try:
        if urlsplit(url).scheme in ("http", "https"):
            return HTTPStore(url, client_options=client, retry_config=retry)
        return from_url(url, config=options, client_options=client, retry_config=retry)
    except (exceptions.BaseError, ValueError) as error:
        raise NotPossible(url, "", f"not the URL of a bucket: {first_line(error)}") from error


def checked_key(url: str, key: str) -> str:
    """A key is folder/name with no way out of the bucket, equal on every kind of store."""
    parts = key.split("/")
    if len(key) > 900 or any(part in ("", ".", "..") for part in parts):
        raise NotPossible(url, key[:80], "a key is 1 to 900 characters, with no empty or dot parts")
    if not key.isprintable() or any(mark in key for mark in "\\#?%*"):
        raise NotPossible(url, repr(key), "a key has no control characters and none of \\ # ? % *")
    return key


def checked_prefix(url: str, prefix: str) -> str | None:
    return checked_key(url, prefix.rstrip("/")) if prefix.rstrip("/") else None


def checked_range(url: str, key: str, start: int, length: int) -> None:
    checked_key(url, key)
    if start < 0 or length < 1:
        raise NotPossible(url, key, f"{length} bytes from {start} is not a range")


def is_denial(error: BaseException) -> bool:
    kinds = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError)
    # Listing reports every refusal as a generic error; only its text tells.
    return isinstance(error, kinds) or any(
        status in str(error) for status in ("401 Unauthorized", "403 Forbidden")
    )


def is_broken_off(error: BaseException) -> bool:
    return "response body error" in str(error)


def first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]


def again(method: Callable[P, T]) -> Callable[P, T]:
    """Read anew when an answer breaks off: obstore retries a request, but not its body."""

    @functools.wraps(method)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(READS - 1):
            with contextlib.suppress(BrokenOff):
                return method(*args, **kwargs)
        return method(*args, **kwargs)

    return reading


def again_async(method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    @functools.wraps(method)
    async def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(READS - 1):
            with contextlib.suppress(BrokenOff):
                return await method(*args, **kwargs)
        return await method(*args, **kwargs)

    return reading
