"""Training state from one rank to another: streamed over a socket, and verified by its hash.

A rank that is behind asks one that is not. Where to ask, and the hash of what it must get, are
announced through the store; nothing goes through a file, and nothing is pickled. What is sent:

    8 bytes          how long the header is
    header           msgpack: the nesting of dicts and lists, with dtypes and shapes of tensors
    the tensors      their bytes, one after the other

The sender's tensors are read where they are, so they must stay as they are until it has closed. If
they change all the same, the hash is another one and the receiver does not take them.
"""

import contextlib
import hmac
import math
import secrets
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import torch
from blake3 import blake3
from torch import Tensor

from folkmoot.core.unreadable import UNREADABLE

# Seconds without a byte after which a connection is given up.
SILENCE = 20.0
CHUNK = 4 * 1024 * 1024
MAX_HEADER = 64 * 1024 * 1024
TOKEN = 32
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
        *(torch.complex64, torch.complex128),
    )
}


class BadState(Exception):
    """What came is not what was announced."""


class Announcement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a state can be had, and what it is."""

    host: str
    port: int
    token: str  # in hex: who can read the store may have the state, and nobody else
    size: int
    hash: str  # blake3 of everything that is sent, in hex


class TensorInfo(msgspec.Struct, frozen=True, array_like=True):
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        if self.dtype not in DTYPES or any(side < 0 for side in self.shape):
            raise BadState(f"there is no tensor of {self.dtype} with shape {self.shape}")
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


class Header(msgspec.Struct, frozen=True):
    tree: Any  # [kind, value]: see `_flatten`
    tensors: tuple[TensorInfo, ...]


def read_announcement(value: bytes) -> Announcement:
    try:
        return msgspec.json.decode(value, type=Announcement)
    except UNREADABLE as error:
        raise BadState(f"the announcement of a state cannot be read: {error}") from None


class StateServer:
    """Gives one state to all who ask for it, from when it is made until it is closed."""

    def __init__(self, state: Any, host: str) -> None:
        self._tensors: list[Tensor] = []
        tree = _flatten(state, self._tensors)
        infos = tuple(TensorInfo(_name(t), tuple(t.shape)) for t in self._tensors)
        header = msgspec.msgpack.encode(Header(tree, infos))
        self._start = struct.pack("<Q", len(header)) + header
        self._token = secrets.token_bytes(TOKEN)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, 0), family=family, backlog=128)
        digest, size = blake3(), 0
        for chunk in self._chunks():
            digest.update(chunk)
            size += len(chunk)
        port = self._listening.getsockname()[1]
        self.announcement = Announcement(host, port, self._token.hex(), size, digest.hexdigest())
        threading.Thread(target=self._accept, name="state", daemon=True).start()

    def close(self) -> None:
        """No more askers; those who are being served may get a part of something else."""
        with contextlib.suppress(OSError):  # some systems refuse, and then close is enough
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._listening.close()

    def _chunks(self) -> Iterator[memoryview]:
        yield memoryview(self._start)
        for tensor in self._tensors:
            content = memoryview(_bytes_of(tensor))
            for at in range(0, len(content), CHUNK):
                yield content[at : at + CHUNK]

    def _accept(self) -> None:
        while True:
            try:
                asker, _ = self._listening.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(asker,), name="state", daemon=True).start()

    def _serve(self, asker: socket.socket) -> None:
        with asker:
            asker.settimeout(SILENCE)
            try:
                if hmac.compare_digest(_receive(asker, TOKEN), self._token):
                    for chunk in self._chunks():
                        asker.sendall(chunk)
            except OSError:  # the asker has gone; it asks again, or has died
                return


def fetch_state(source: Announcement) -> Any:
    """The announced state. OSError when its holder is gone, `BadState` when it is another."""
    with socket.create_connection((source.host, source.port), SILENCE) as stream:
        stream.sendall(bytes.fromhex(source.token))
        digest = blake3()
        (length,) = struct.unpack("<Q", start := _receive(stream, 8))
        if length > min(MAX_HEADER, source.size):
            raise BadState(f"a header of {length} bytes, where {source.size} in all were announced")
        encoded = _receive(stream, length)
        digest.update(start + encoded)
        header = _read_header(bytes(encoded))
        if 8 + length + sum(info.size for info in header.tensors) != source.size:
            raise BadState("the tensors do not have the announced size")
        tensors = [_receive_tensor(stream, info, digest) for info in header.tensors]
    if digest.hexdigest() != source.hash:
        raise BadState("the bytes do not have the announced hash")
    return _unflatten(header.tree, tensors)


def _read_header(encoded: bytes) -> Header:
    try:
        return msgspec.msgpack.decode(encoded, type=Header)
    except UNREADABLE as error:
        raise BadState(f"the header cannot be read: {error}") from None


def _receive(stream: socket.socket, count: int) -> bytearray:
    buffer = bytearray(count)
    _receive_into(stream, memoryview(buffer))
    return buffer


def _receive_into(stream: socket.socket, space: memoryview) -> None:
    while space:
        received = stream.recv_into(space)
        if not received:
            raise ConnectionResetError("the connection was closed early")
        space = space[received:]


def _receive_tensor(stream: socket.socket, info: TensorInfo, digest: Any) -> Tensor:
    tensor = torch.empty(info.shape, dtype=DTYPES[info.dtype])
    space = memoryview(_bytes_of(tensor))
    for at in range(0, len(space), CHUNK):
        _receive_into(stream, space[at : at + CHUNK])
        digest.update(space[at : at + CHUNK])
    return tensor


def _bytes_of(tensor: Tensor) -> Any:
    """The bytes of a tensor, as a numpy array of bytes; the tensor's own, if it is in memory."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _name(tensor: Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise TypeError(f"tensors of {name} are not sent; known: {', '.join(DTYPES)}")
    return name


def _flatten(value: Any, tensors: list[Tensor]) -> tuple[str, Any]:
    """`value` without its tensors, which go to the list: a tree of kinds and contents."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return "tensor", len(tensors) - 1
    if isinstance(value, dict):
        return "dict", [(key, _flatten(item, tensors)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return kind, [_flatten(item, tensors) for item in value]
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return "value", value
    raise TypeError(f"a state holds tensors, numbers, texts, dicts and lists, not {type(value)}")


def _unflatten(tree: Any, tensors: list[Tensor]) -> Any:
    try:
        kind, value = tree
        if kind == "tensor":
            return tensors[value]
        if kind == "dict":
            return {key: _unflatten(item, tensors) for key, item in value}
        if kind == "list":
            return [_unflatten(item, tensors) for item in value]
        if kind == "tuple":
            return tuple(_unflatten(item, tensors) for item in value)
        if kind == "value":
            return value
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        raise BadState(f"the header makes no sense: {error}") from None
    raise BadState(f"the header names a kind {kind!r}")
