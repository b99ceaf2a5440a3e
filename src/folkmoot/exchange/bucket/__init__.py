"""Objects by key behind one URL: S3, Google Cloud, Azure, a folder, memory, or read-only HTTP."""

from folkmoot.exchange.bucket.bucket import (
    AlreadyExists,
    BrokenOff,
    Bucket,
    BucketError,
    BucketObject,
    Denied,
    Entry,
    Missing,
    NotPossible,
    TooLarge,
    TooShort,
    folder_of,
    open_object,
)

__all__ = [
    "AlreadyExists",
    "BrokenOff",
    "Bucket",
    "BucketError",
    "BucketObject",
    "Denied",
    "Entry",
    "Missing",
    "NotPossible",
    "TooLarge",
    "TooShort",
    "folder_of",
    "open_object",
]
