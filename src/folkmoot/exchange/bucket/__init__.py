"""Objects by key behind one URL: S3, Google Cloud, Azure, a folder, memory, or read-only HTTP."""

from folkmoot.exchange.bucket.bucket import (
    AccessDenied,
    AlreadyExists,
    BrokenOff,
    Bucket,
    BucketError,
    BucketObject,
    Missing,
    NotPossible,
    ObjectInfo,
    TooLarge,
    TooShort,
    folder_of,
    open_object,
)

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "BrokenOff",
    "Bucket",
    "BucketError",
    "BucketObject",
    "Missing",
    "NotPossible",
    "ObjectInfo",
    "TooLarge",
    "TooShort",
    "folder_of",
    "open_object",
]
