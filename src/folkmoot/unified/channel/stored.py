"""The batches that a channel holds, as bytes, and as what is written down of them."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from folkmoot.core.unreadable import UNREADABLE
from folkmoot.unified.channel.errors import SpoolError
from folkmoot.unified.channel.messages import Ids
from folkmoot.unified.channel.spool import SpoolEntry


class Cut(NamedTuple):
    """Some records of a batch in a row: the small ones as bytes, or where they lie in its body."""

    sizes: list[int]
    regions: list[tuple[int, int]]
    body: memoryview
    begin: int = 0
    length: int = 0


class Stored(msgspec.Struct):
    """The records of one batch; those of size 0 lie in `heap`, in the order of `regions`.

    The others are `body`, or lie in the heap as well, at `lies`: (offset, length).
    """

    sizes: list[int]
    regions: list[tuple[int, int]]
    heap: str
    body: memoryview
    lies: tuple[int, int] = (0, 0)

    @property
    def offsets(self) -> list[int]:
        """Of all regions in use."""
        return [offset for offset, length in (*self.regions, self.lies) if length]

    def cut(self, begin: int, end: int) -> Cut:
        if begin == 0 and end == len(self.sizes):
            return Cut(self.sizes, self.regions, self.body, 0, self.lies[1])
        before, sizes = self.sizes[:begin], self.sizes[begin:end]
        regions = self.regions
        if regions:
            skipped = before.count(0)
            regions = regions[skipped : skipped + sizes.count(0)]
        first, length = sum(before), sum(sizes)
        if self.lies[1]:
            return Cut(sizes, regions, self.body, first, length)
        return Cut(sizes, regions, self.body[first : first + length])


class SpoolRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """An entry of the spool."""


class ChannelState(SpoolRecord, frozen=True):
    """All that a channel knows beside its records."""

    uid: str
    next_id: int
    last: dict[str, int]
    used: dict[str, Ids]
    finished: list[str]
    closed: bool


class StoredBatch(SpoolRecord, frozen=True):
    """Records are in, whose bytes are the entry's body, or lie in the heap."""

    first: int
    sizes: Sequence[int]
    regions: Sequence[tuple[int, int]]
    heap: str
    producer: str = ""  # empty when the batch was accounted for before
    last: int = 0
    sources: dict[str, Ids] = {}
    lies: tuple[int, int] = (0, 0)


class Acked(SpoolRecord, frozen=True):
    ids: Ids


class ProducerFinished(SpoolRecord, frozen=True):
    """By this producer, or by all when it is empty."""

    producer: str = ""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ChannelState | StoredBatch | Acked | ProducerFinished)


def write(entry: SpoolRecord) -> bytes:
    return _encoder.encode(entry)


def read(entry: SpoolEntry) -> ChannelState | StoredBatch | Acked | ProducerFinished:
    try:
        known: ChannelState | StoredBatch | Acked | ProducerFinished = _decoder.decode(entry.header)
    except UNREADABLE as error:
        raise SpoolError(f"an entry of the spool cannot be read: {error}") from None
    return known
