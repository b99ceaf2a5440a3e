"""What an end sends that makes no sense costs that end its connection, and nobody else anything."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.unified.channel import messages
from folkmoot.unified.channel.line import ChannelAddress, ChannelLine, open_line
from folkmoot.unified.channel.messages import Hello, Put
from folkmoot.unified.rpc.errors import FrameError
from support.channels import SECRET, Held

Hold = Callable[..., Held]
NAMES = sorted(messages._DECODERS)


@given(st.sampled_from([*NAMES, "Nothing", ""]), st.binary(max_size=60))
def test_bytes_are_a_message_or_refused(name: str, encoded: bytes) -> None:
    try:
        message = messages.load(name, encoded)
    except FrameError:
        return
    assert messages.load(name, messages.dump(message)) == message


VALUES = st.recursive(
    st.integers(-5, 2**40) | st.text(max_size=3) | st.none() | st.booleans(),
    lambda some: (
        st.lists(some, max_size=4) | st.dictionaries(st.text(max_size=3), some, max_size=2)
    ),
    max_leaves=8,
)


@given(st.sampled_from(NAMES), st.lists(VALUES, max_size=5))
def test_any_values_are_a_message_or_refused(name: str, values: list[object]) -> None:
    try:
        messages.load(name, msgspec.msgpack.encode(values))
    except FrameError:
        return


def raw(held: Held, hello: Hello) -> ChannelLine:
    return open_line(ChannelAddress("c", held.address, SECRET, 5.0), hello)[0]


BAD_PUTS = [
    (Put(1, [5]), b"four"),
    (Put(1, [-1, 5]), b"four"),
    (Put(1, [0]), b""),
    (Put(1, [4], [(0, 10)]), b"four"),
    (Put(1, [0], [(-4096, 10)]), b""),
    (Put(1, [0], [(0, 10)]), b""),  # without a heap
    (Put(1, [4], [], {}, (0, 4)), b""),  # the same
    (Put(1, [4], [], {}, (0, 5)), b""),
    (Put(1, [4], [], {}, (-4096, 4)), b""),
    (Put(1, [4], [], {}, (0, -4)), b"four"),
    (Put(1, [8], [], {}, (0, 4)), b"four"),
]


@pytest.mark.parametrize(("put", "body"), BAD_PUTS)
def test_a_batch_that_does_not_fit_its_bytes_ends_the_connection(
    hold: Hold, put: Put, body: bytes
) -> None:
    held = hold()
    line = raw(held, Hello("c", "p"))
    line.send(put, [body])
    with pytest.raises(OSError, match=r"gone|reset"):
        line.receive(10.0)
    other = held.end()
    other.put(1)
    assert other.get().records == [1]


@pytest.mark.parametrize(
    "hello", [Hello("c", "p", "../elsewhere"), Hello("c", "p", "heap.x/../../y")]
)
def test_a_heap_is_a_file_of_the_channel(hold: Hold, hello: Hello) -> None:
    held = hold()
    with pytest.raises(Exception, match=r"gone|reset"):
        open_line(ChannelAddress("c", held.address, SECRET, 0.05), hello)


@pytest.mark.parametrize(
    ("message", "parts"), [(Put(1, [1]), [b"x"]), (messages.Done(), [])], ids=["put", "done"]
)
def test_what_a_consumer_must_not_say_ends_the_connection(
    hold: Hold, message: messages.Message, parts: list[bytes]
) -> None:
    line = raw(hold(), Hello("c"))
    line.send(message, parts)
    with pytest.raises(OSError, match=r"gone|reset"):
        line.receive(10.0)
