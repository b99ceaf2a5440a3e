"""Every decoder of a run that reads a stranger's bytes, or a disk's, in one table.

Whatever the bytes are (noise, a good sample with bytes changed, cut or added, msgpack of anything),
a decoder gives a value or its own typed error, and nothing else. Fifty tries each in the suite;
`make faults` plays forty times as many (`--hypothesis-profile=long`).
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from iroh import SecretKey

from folkmoot.authority.server import service
from folkmoot.authority.server import wire as run_wire
from folkmoot.client import results
from folkmoot.core import coordinator, delta
from folkmoot.core.config import ConfigError
from folkmoot.core.coordinator import Run, create, decode, decode_run, encode
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.client.ledger import Result
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.core.coordinator.view import apply_change, encode_change, view
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.exchange.peer import uniffi_copy, wire
from folkmoot.exchange.peer.address import Address, decode_address, encode_address
from folkmoot.exchange.peer.message import Blob, Content, seal, unseal
from folkmoot.exchange.peer.model import GET_MANIFEST
from folkmoot.exchange.peer.rpc import NoAnswer
from folkmoot.host import durable
from folkmoot.host.journal_format import CHUNK, Damaged, new_file, read_file
from folkmoot.learning.checkpoints.manifest import (
    MANIFEST,
    CheckpointError,
    FileDigest,
    Manifest,
    read_manifest,
)
from folkmoot.learning.checkpoints.stored_hash import _leaf_hashes
from folkmoot.learning.methods.dense_wire import DenseWire
from folkmoot.learning.methods.distro import wire as distro
from folkmoot.learning.methods.distro.cpu import packing
from folkmoot.learning.methods.distro.plan import make_plan
from folkmoot.learning.methods.frame import check_frame
from folkmoot.learning.methods.sparse_wire import SparseWire

WHO, HASH = bytes(range(32)), bytes(32)
SHAPES = [("a", (64, 16)), ("b", (5,))]
RUN = Run(run_id="moot", config=CoordinatorConfig(total_steps=3, min_clients=2), model=Model())
STATE = create(RUN, 0)
MOVED = coordinator.apply(STATE, m.Pause(), 5, 1).state
WAITING = coordinator.apply(STATE, m.Join(WHO, "moot", b"", b"here"), 5, 1).state
BEGUN = coordinator.apply(WAITING, m.Join(HASH, "moot"), 6, 2).state
RESULT = Result(1, 2, WHO, HASH, HASH, 10)
pack = msgspec.msgpack.encode


class Decoder(NamedTuple):
    read: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...]
    samples: tuple[bytes, ...]


class OneFile:
    """A store with one object."""

    url, folder = "here", None

    def __init__(self, content: bytes) -> None:
        self.content = content

    def put(self, key: str, body: Iterable[Any]) -> None: ...

    def delete(self, key: str) -> None: ...

    def list(self, prefix: str = "") -> Iterable[Any]:
        return ()

    def stream(self, key: str, limit: int) -> Iterator[bytes]:
        yield self.content


def _manifest(data: bytes) -> Manifest:
    return read_manifest(
        OneFile(data),
        "step-00000001",
        {f"step-00000001/{MANIFEST}": len(data), "step-00000001/config.json": 2},
    )


def _change(data: bytes) -> Any:
    return encode(apply_change(view(WAITING), data))


def _distro(bits: int) -> Decoder:
    plan = make_plan(SHAPES, 64, 3, bits)

    def check(data: bytes) -> Any:
        if (found := check_frame(data, distro.header(plan), distro.payload_size(plan))) is not None:
            return found
        assert distro.check_body(plan, data) == packing.check_body(plan, data)
        return None

    zeros = distro.pack(
        plan,
        np.concatenate([np.tile(np.arange(g.k, dtype=np.int32), g.count) for g in plan.groups]),
        np.ones(plan.entries, np.float32),
    )
    assert check(zeros) is None
    return Decoder(check, (), (zeros,))


def _of_wire(made: Any) -> Decoder:
    return Decoder(made.check, (), (made.header + bytes(made.size - len(made.header)),))


def _toml(data: bytes) -> Run:
    return decode_run(data.decode("utf-8", "replace"))


def _records() -> bytes:
    """A file that is full: damage to zeros after its records would be no damage."""
    frames, body = new_file((b"one",))
    for record in (b"two" * 20, bytes(range(1, 256)) * 2048):
        record = record[: CHUNK - len(body) - frames.overhead]
        body += frames.frame(record, len(body))
        frames.kept(record)
    return body


@functools.cache
def _sealed() -> tuple[bytes, bytes]:
    uniffi_copy.install()
    secret = SecretKey.from_bytes(WHO)
    content = Content(secret.public().to_bytes(), 5, b"head", b"body", Blob(HASH, 1 << 20))
    return secret.public().to_bytes(), seal(content, HASH, secret).sealed


FRAMES = tuple(
    wire.encode(frame)[4:]
    for frame in (
        wire.Hello(HASH, bytes(8)),
        wire.Gossip(b"sealed"),
        wire.Digest(((1, bytes(16)),)),
        wire.Have(3, (bytes(16),), True),
        wire.Get(HASH, 0, 5, True),
        wire.Found(10, HASH),
        wire.Call("method", b"payload"),
        wire.Answer(b"payload"),
    )
)
ENTRIES = tuple(
    durable.Entry(5, seed, msgspec.Raw(pack(event)))
    for seed, event in enumerate((m.Pause(), m.Join(WHO, "moot")))
)

DECODERS = {
    "peer control": Decoder(wire.decode_control, (wire.Malformed,), FRAMES),
    "peer request": Decoder(wire.decode_request, (wire.Malformed,), FRAMES),
    "blob reply": Decoder(wire.decode_get_reply, (wire.Malformed,), FRAMES),
    "call reply": Decoder(wire.decode_call_reply, (wire.Malformed,), FRAMES),
    "gossip": Decoder(lambda d: unseal(d, HASH), (wire.Malformed,), (_sealed()[1],)),
    "ticket": Decoder(
        decode_address, (ValueError,), (encode_address(Address(("127.0.0.1:1",), None)),)
    ),
    "model from peers": Decoder(
        GET_MANIFEST.read_answer, (NoAnswer,), (pack([HASH, [["a", HASH, HASH]]]),)
    ),
    "question for results": Decoder(
        results.GET_RESULTS.question.decode, UNREADABLE, (pack([1, 2, [WHO]]),)
    ),
    "results asked for": Decoder(results.GET_RESULTS.read_answer, (NoAnswer,), (pack([RESULT]),)),
    "signed request": Decoder(
        run_wire.Signed.FromString,
        (DecodeError,),
        (run_wire.Signed(public_key=WHO, nonce=3, payload=b"x").SerializeToString(),),
    ),
    "change from the server": Decoder(
        run_wire.Change.FromString,
        (DecodeError,),
        (run_wire.Change(version=2, delta=b"x").SerializeToString(),),
    ),
    "message of a client": Decoder(
        service._messages.decode,
        UNREADABLE,
        (pack(m.Join(WHO, "moot")), pack(m.HealthCheck(WHO, (WHO,), 5)), pack(m.Update(RUN))),
    ),
    "range of data": Decoder(
        service._ranges.decode, UNREADABLE, (pack(run_wire.Range("train.bin", 0, 10)),)
    ),
    "state": Decoder(decode, (msgspec.ValidationError,), (encode(BEGUN), encode(MOVED))),
    "change of a state": Decoder(
        _change,
        (delta.DeltaError,),
        tuple(encode_change(view(WAITING), view(after)) for after in (STATE, MOVED, BEGUN)),
    ),
    "journal": Decoder(read_file, (Damaged,), (_records(),)),
    "journal record": Decoder(
        durable.decode_record,
        UNREADABLE,
        (pack(durable.Snapshot("moot", 1, b"state")), pack(durable.RecordBatch(0, ENTRIES))),
    ),
    "DisTrO, 1 bit": _distro(1),
    "DisTrO, 16 bits": _distro(16),
    "whole update": _of_wire(DenseWire(SHAPES, "dense", 16)),
    "sparse update": _of_wire(SparseWire(SHAPES, 8)),
    "manifest of a checkpoint": Decoder(
        _manifest,
        (CheckpointError,),
        (msgspec.json.encode(Manifest(1, {"config.json": FileDigest(2, "00")})),),
    ),
    "stored tensors": Decoder(
        lambda d: _leaf_hashes(iter([d]), "here"),
        (CheckpointError,),
        (
            (64).to_bytes(8, "little")
            + b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'.ljust(64)
            + bytes(8),
        ),
    ),
    "run.toml": Decoder(
        _toml, (ConfigError,), (b'run_id = "a"\n[config]\ntotal_steps = 3\n[model]\n',)
    ),
}

Numbers = st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
Anything = st.recursive(
    st.none() | Numbers | st.binary(max_size=40) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
)


@st.composite
def damaged(draw: st.DrawFn, samples: tuple[bytes, ...]) -> bytes:
    """A good sample with bytes changed, a piece cut out or copied, or something added."""
    data = bytearray(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.integers(0, 3)):
            case 0 if data:
                data[at] = draw(st.integers(0, 255))
            case 1:
                del data[at : at + draw(st.integers(1, 16))]
            case 2:
                data[at:at] = draw(st.binary(max_size=16))
            case 3:
                data[at:at] = data[at : at + draw(st.integers(1, 16))]
    return bytes(data)


@pytest.mark.parametrize("name", DECODERS)
def test_a_good_sample_is_read(name: str) -> None:
    if name in ("peer control", "peer request", "blob reply", "call reply"):
        return  # each reads some of the frames; the peers' own tests say which
    for sample in DECODERS[name].samples:
        DECODERS[name].read(sample)


@pytest.mark.parametrize("name", DECODERS)
def test_bytes_are_read_or_refused_and_nothing_else_happens(name: str) -> None:
    decoder = DECODERS[name]

    @given(st.one_of(damaged(decoder.samples), st.binary(max_size=300), Anything.map(pack)))
    def play(data: bytes) -> None:
        try:
            decoder.read(data)
        except decoder.errors:
            return

    play()
