"""What comes from outside is read into a typed value or refused; nothing else ever happens."""

import os
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from iroh import SecretKey

from folkmoot.exchange.peer import uniffi_copy, wire
from folkmoot.exchange.peer.address import (
    ADDRESS_LIMIT,
    Address,
    decode_address,
    encode_address,
)
from folkmoot.exchange.peer.endpoint import to_dial
from folkmoot.exchange.peer.message import Blob, Content, GossipMessage, peek_id, seal, unseal
from folkmoot.exchange.peer.model import GET_MANIFEST, ModelManifest
from folkmoot.exchange.peer.rpc import NoAnswer

DECODERS = [
    (wire.decode_control, wire.Control),
    (wire.decode_request, wire.Request),
    (wire.decode_get_reply, wire.GetReply),
    (wire.decode_call_reply, wire.CallReply),
]
FRAMES: list[wire.Frame] = [
    wire.Hello(bytes(32), bytes(8)),
    wire.Gossip(b"sealed"),
    wire.Digest(((1, bytes(16)), (2, bytes(16)))),
    wire.Have(3, (bytes(16),), True),
    wire.Want((bytes(16), bytes(16))),
    wire.Get(bytes(32), 0, 5, True),
    wire.Found(10, bytes(32)),
    wire.Call("method", b"payload"),
    wire.Answer(b"payload"),
    wire.RefusedReply("why", True),
]
TOPIC = bytes(32)


def _message() -> GossipMessage:
    uniffi_copy.install()
    secret = SecretKey.from_bytes(bytes(range(32)))
    content = Content(secret.public().to_bytes(), 5, b"head", b"body", Blob(bytes(32), 1 << 20))
    return seal(content, TOPIC, secret)


MESSAGE = _message()

Garbage = st.binary(max_size=300) | st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary() | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=3),
).map(msgspec.msgpack.encode)


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_a_frame_is_read_as_it_was_written(frame: wire.Frame) -> None:
    data = wire.encode(frame)
    assert wire.length_of(data[:4], 1000) == len(data) - 4
    read = []
    for decode, _ in DECODERS:
        try:
            read.append(decode(data[4:]))
        except wire.Malformed:
            continue
    assert read
    assert all(value == frame for value in read)


@given(Garbage)
def test_garbage_is_malformed_or_a_frame(data: bytes) -> None:
    for decode, kinds in DECODERS:
        try:
            assert isinstance(decode(data), kinds)
        except wire.Malformed:
            continue


@given(st.sampled_from(FRAMES), st.data())
def test_a_damaged_frame_is_malformed_or_another_frame(
    frame: wire.Frame, data: st.DataObject
) -> None:
    body = bytearray(wire.encode(frame)[4:])
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for damaged in (bytes(body), bytes(body[:cut]), bytes(body) + b"x"):
        for decode, kinds in DECODERS:
            try:
                assert isinstance(decode(damaged), kinds)
            except wire.Malformed:
                continue


@given(st.binary(min_size=4, max_size=4), st.integers(1, 2**32))
def test_a_length_over_the_bound_is_refused_before_anything_is_read(
    head: bytes, limit: int
) -> None:
    length = int.from_bytes(head, "little")
    if 0 < length <= limit:
        assert wire.length_of(head, limit) == length
    else:
        with pytest.raises(wire.Malformed):
            wire.length_of(head, limit)


@pytest.mark.parametrize(
    "frame",
    [
        wire.Hello(bytes(31), bytes(8)),
        wire.Want(tuple(bytes(16) for _ in range(5000))),
        wire.Want((bytes(15),)),
        wire.Have(-1, (), True),
        wire.Get(bytes(32), -1, 5, True),
        wire.Digest(tuple((n, bytes(16)) for n in range(300))),
    ],
)
def test_fields_out_of_bounds_are_refused(frame: wire.Frame) -> None:
    for decode, _ in DECODERS:
        with pytest.raises(wire.Malformed):
            decode(wire.encode(frame)[4:])


def test_a_deeply_nested_frame_is_refused() -> None:
    for decode, _ in DECODERS:
        with pytest.raises(wire.Malformed):
            decode(b"\x91" * 100_000 + b"\xc0")


def test_a_message_is_read_as_it_was_sealed() -> None:
    assert unseal(MESSAGE.sealed, TOPIC) == MESSAGE
    assert peek_id(MESSAGE.sealed) == MESSAGE.id


def test_a_message_is_signed_for_one_run() -> None:
    with pytest.raises(wire.Malformed, match="did not sign"):
        unseal(MESSAGE.sealed, bytes(31) + b"x")


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_no_byte_of_a_message_can_be_changed(at: int, flip: int) -> None:
    data = bytearray(MESSAGE.sealed)
    data[at % len(data)] ^= flip
    with pytest.raises(wire.Malformed):
        unseal(bytes(data), TOPIC)


@given(Garbage)
def test_garbage_is_no_message(data: bytes) -> None:
    for sealed in (data, data + bytes(64)):
        peek_id(sealed)
        with pytest.raises(wire.Malformed):
            unseal(sealed, TOPIC)


def test_an_author_that_is_no_point_on_the_curve_is_refused() -> None:
    for origin in (bytes(32), b"\xff" * 32, b"\x02" + bytes(31)):
        data = msgspec.msgpack.encode(Content(origin, 1, b"", b"")) + bytes(64)
        with pytest.raises(wire.Malformed):
            unseal(data, TOPIC)


@given(Garbage)
def test_garbage_is_no_address(data: bytes) -> None:
    with suppress(ValueError):
        assert isinstance(decode_address(data), Address)
    with suppress(ValueError):
        to_dial(MESSAGE.origin, data)


@given(st.lists(st.text(max_size=60), max_size=12), st.none() | st.text(max_size=60))
def test_an_address_fits_into_its_bound(direct: list[str], relay: str | None) -> None:
    data = encode_address(Address(tuple(direct), relay))
    assert len(data) <= ADDRESS_LIMIT
    read = decode_address(data)
    assert read.relay == relay
    assert read.direct == tuple(direct)[: len(read.direct)]


def test_who_has_no_key_cannot_be_dialled() -> None:
    with pytest.raises(ValueError, match="cannot be dialled"):
        to_dial(os.urandom(31), encode_address(Address(("127.0.0.1:1",))))


@given(Garbage)
def test_garbage_is_no_manifest(data: bytes) -> None:
    with suppress(NoAnswer):
        assert isinstance(GET_MANIFEST.read_answer(data), ModelManifest)
