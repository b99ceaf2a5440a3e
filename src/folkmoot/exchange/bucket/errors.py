"""What can go wrong with a bucket: each failure says which object, and what to do."""

import contextlib
from collections.abc import Iterator

from obstore import exceptions

from folkmoot.core.user_error import UserError


class BucketError(UserError):
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


@contextlib.contextmanager
def translated(url: str, key: str) -> Iterator[None]:
    """Turn what obstore and the system raise into a `BucketError` about this object."""
    try:
        yield
    except FileNotFoundError as error:
        raise Missing(url, key, "there is no such object") from error
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileExistsError) as e:
        raise AlreadyExists(url, key, "the object already exists") from e
    except exceptions.NotSupportedError as error:
        raise NotPossible(url, key, first_line(error)) from error
    except (exceptions.BaseError, OSError) as error:
        if is_denial(error):
            why = f"access denied; check the credentials and their rights: {first_line(error)}"
            raise AccessDenied(url, key, why) from error
        if is_broken_off(error):
            raise BrokenOff(url, key, "the transfer broke off") from error
        raise BucketError(url, key, first_line(error)) from error


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
