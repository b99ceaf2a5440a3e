"""What goes over a channel's connections, beside the records themselves.

The name of a message is the method of its frame; the message is the frame's first part, in msgpack;
the records' bytes are the parts after it, which whoever holds the channel never looks into. An id
span is (first, end). A record's size is 0 when it lies in a heap file by itself: then it is the
next of `regions`, (offset, length) in the heap of the producer's connection. The small records of a
batch can lie there together, in its `body`; it has no length when they are in the frame.
"""

from typing import Annotated, Any

import msgspec

from folkmoot.core.unreadable import UNREADABLE
from folkmoot.unified.channel.queue import ChannelRules
from folkmoot.unified.rpc.errors import FrameError

Ids = list[tuple[int, int]]
Size = Annotated[int, msgspec.Meta(ge=0)]


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Its name on the wire is the class's."""


class Hello(Message, frozen=True):
    """Either end of a channel says who it is; a consumer's `producer` is empty."""

    channel: str
    producer: str = ""
    heap: str = ""  # the name of the heap file of this connection, if it will have one
    uid: str = ""  # of the channel, as it was told before


class Welcome(Message, frozen=True):
    uid: str
    rules: ChannelRules
    folder: str
    last: int  # the highest number of this producer that is in


class Put(Message, frozen=True):
    number: int
    sizes: list[Size]
    regions: list[tuple[int, int]] = []
    sources: dict[str, Ids] = {}
    body: tuple[int, int] = (0, 0)

    @property
    def offsets(self) -> list[int]:
        """Of all regions that it lies in."""
        return [offset for offset, length in (*self.regions, self.body) if length]


class Confirmed(Message, frozen=True):
    """All records of this producer up to this number are in, and stay in.

    The regions of its heap at these offsets may be used again: nobody reads them any more.
    """

    last: int
    freed: list[int] = []


class WereUsed(Message, frozen=True):
    """A put was not done: these sources were used before."""

    number: int
    spans: dict[str, Ids]


class Get(Message, frozen=True):
    """`acks` and `released` are done first. Waits for a record up to `wait` ms, for ever if -1."""

    limit: int
    wait: int = -1
    acks: Ids = []
    released: list[tuple[str, int]] = []


class Cancel(Message, frozen=True):
    """A `Get` that is not answered is answered now, with nothing."""


class HeapRegion(Message, frozen=True):
    heap: str
    offset: int
    length: int


class Slice(Message, frozen=True):
    """A part of a batch's body; without a length when the records are in the frame."""

    heap: str = ""
    offset: int = 0  # of the body
    begin: int = 0  # in the body
    length: int = 0


IN_FRAME = Slice()


class Delivery(Message, frozen=True):
    """Records with these ids; none when the time is over, and `drained` when none will come.

    Each span has a part of the frame, and a slice of a body if there are `bodies`.
    """

    ids: Ids
    sizes: list[int]
    regions: list[HeapRegion] = []
    drained: bool = False
    bodies: list[Slice] = []
    more: bool = False  # are waiting


class Ack(Message, frozen=True):
    """`released` is done afterwards."""

    ids: Ids
    released: list[tuple[str, int]] = []


class GiveBack(Message, frozen=True):
    ids: Ids


class Extend(Message, frozen=True):
    ids: Ids


class Released(Message, frozen=True):
    """Nothing in this process looks at these regions any more."""

    regions: list[tuple[str, int]]


class Leave(Message, frozen=True):
    """No more will be asked; leases go to others. What was delivered may still be looked at."""


class Finish(Message, frozen=True):
    """This producer has put its last record; or everyone has."""

    everyone: bool = False


class Done(Message, frozen=True):
    """What was asked is done, and stays done."""


class Failed(Message, frozen=True):
    reason: str
    closed: bool = False


class Look(Message, frozen=True):
    pass


class Stats(Message, frozen=True):
    """A channel as it is now. Times in milliseconds, rates in records a second."""

    depth: int  # records that are not acked, of these
    waiting: int
    leased: int
    size: int
    put: int
    acked: int
    redelivered: int
    put_rate: float
    acked_rate: float
    mean_wait: float  # of the records delivered lately, from put to delivery
    longest_wait: float
    blocked: int  # producers that wait for room
    starved: int  # consumers that wait for a record
    closed: bool


_ALL = (
    *(
        Hello,
        Welcome,
        Put,
        Confirmed,
        WereUsed,
        Get,
        Cancel,
        Delivery,
        Ack,
        GiveBack,
        Extend,
    ),
    *(Released, Leave, Finish, Done, Failed, Look, Stats),
)
_DECODERS: dict[str, msgspec.msgpack.Decoder[Any]] = {
    kind.__name__: msgspec.msgpack.Decoder(kind) for kind in _ALL
}
_encoder = msgspec.msgpack.Encoder()


def dump(message: Message) -> bytes:
    return _encoder.encode(message)


def load(name: str, encoded: memoryview | bytes) -> Message:
    """A message by its name; `FrameError` if it is none."""
    decoder = _DECODERS.get(name)
    if decoder is None:
        raise FrameError(f"a channel has no message {name[:40]!r}")
    try:
        message: Message = decoder.decode(encoded)
    except UNREADABLE as error:
        raise FrameError(f"{name} cannot be read: {error}") from None
    return message


def expect_sane(put: Put, inline: int) -> None:
    """The sizes of a batch must fit its bytes, since deliveries are cut out of them by size."""
    offset, length = put.body
    if offset < 0 or length < 0 or (length and inline):
        raise FrameError("a body is no part of a heap")
    if sum(put.sizes) != inline + length:
        raise FrameError("the sizes of a batch do not fit its bytes")
    if put.sizes.count(0) != len(put.regions):
        raise FrameError("the regions of a batch do not fit its sizes")
    if any(offset < 0 or length <= 0 for offset, length in put.regions):
        raise FrameError("a region is no part of a heap")
