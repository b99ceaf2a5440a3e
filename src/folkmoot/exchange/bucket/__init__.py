"""Objects by key behind one URL: S3, Google Cloud, Azure, a folder, memory, or read-only HTTP;
and repositories of the Hugging Face Hub, as far as checkpoints need them.
"""

from folkmoot.exchange.bucket.backend import folder_of
from folkmoot.exchange.bucket.bucket import Bucket, ObjectInfo
from folkmoot.exchange.bucket.errors import (
    AccessDenied,
    AlreadyExists,
    BrokenOff,
    BucketError,
    Missing,
    NotPossible,
    TooLarge,
    TooShort,
)
from folkmoot.exchange.bucket.hub import HubRepository, open_checkpoints
from folkmoot.exchange.bucket.object import BucketObject, open_object

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "BrokenOff",
    "Bucket",
    "BucketError",
    "BucketObject",
    "HubRepository",
    "Missing",
    "NotPossible",
    "ObjectInfo",
    "TooLarge",
    "TooShort",
    "folder_of",
    "open_checkpoints",
    "open_object",
]
