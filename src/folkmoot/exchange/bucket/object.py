"""One object of a bucket as a source of bytes."""

from collections.abc import Mapping, Sequence

from folkmoot.exchange.bucket.bucket import Bucket, Ranges
from folkmoot.exchange.bucket.errors import NotPossible


class BucketObject:
    """One object as a source of bytes: `size()` and `read(start, length)`."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        self.bucket, self.key = bucket, key
        self.name = f"{bucket.url.rstrip('/')}/{key}"

    def size(self) -> int:
        return self.bucket.size(self.key)

    def read(self, start: int, length: int) -> memoryview:
        return self.bucket.get_range(self.key, start, length)

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Ranges:
        return self.bucket.get_ranges(self.key, ranges)


def open_object(
    url: str, options: Mapping[str, str] | None = None, patience: float = 60.0
) -> BucketObject:
    """The object a URL such as `https://host/corpus/train.bin` names."""
    base, _, key = url.rpartition("/")
    if not base or not key or base.endswith(":/"):
        raise NotPossible(url, "", "this URL names no object inside a bucket")
    return BucketObject(Bucket(base, options, patience), key)
