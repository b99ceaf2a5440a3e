"""Both ends show that they know the job's secret before either decodes anything of the other.

    caller    MAGIC, a nonce
    listener  MAGIC, a nonce, a MAC of both nonces as listener
    caller    a MAC of both nonces as caller

Every message has a fixed length, so nothing is parsed; a MAC is made for one side, so it cannot be
sent back to its maker. From secret and nonces follow two keys, one for each direction: over TCP
they seal every frame, so that nobody on the way can put one in (`Seal`).
"""

import hmac
import secrets
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

from cryptography.hazmat.primitives.poly1305 import Poly1305

from folkmoot.unified.rpc.errors import Unauthorised

MAGIC = b"folkmoot-rpc/1\r\n"
NONCE = 32
MAC = 32
OPENING = len(MAGIC) + NONCE
SEAL = 16
LARGE = 32 * 1024
SHORTEST_SECRET = 16

Buffer = bytes | bytearray | memoryview


class FrameKeys(NamedTuple):
    """What seals the frames of each direction."""

    caller: bytes
    listener: bytes


class Seal:
    """The MAC of each frame of one direction, with its number: none is changed or repeated.

    Large frames have Poly1305 with a key of their own each, ten times as fast as HMAC; for small
    ones making that key would take longer than it saves.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._key_of_large = hmac.digest(key, b"large frames", "sha256")
        self._count = 0

    def of(self, parts: Sequence[Buffer]) -> bytes:
        number = struct.pack("<Q", self._count)
        self._count += 1
        if sum(map(len, parts)) < LARGE:
            return hmac.digest(self._key, b"".join((number, *parts)), "sha256")[:SEAL]
        mac = Poly1305(hmac.digest(self._key_of_large, number, "sha256"))
        for part in parts:
            mac.update(part)
        return mac.finalize()


class Caller:
    """`opening` is sent first; `answer` takes what came back."""

    def __init__(self, secret: bytes) -> None:
        self._secret = _long_enough(secret)
        self._nonce = secrets.token_bytes(NONCE)
        self.opening = MAGIC + self._nonce

    def answer(self, message: bytes) -> tuple[bytes, FrameKeys]:
        """The last message of the caller, and the keys; `Unauthorised` if it is no peer of ours."""
        theirs, mac = message[len(MAGIC) : OPENING], message[OPENING:]
        nonces = self._nonce + theirs
        if not message.startswith(MAGIC) or not _equal(mac, _mac(self._secret, b"L", nonces)):
            raise Unauthorised("whoever listens there does not know the job's secret")
        return _mac(self._secret, b"C", nonces), _keys(self._secret, nonces)


class Listener:
    """`reply` takes the opening, `finish` the caller's MAC."""

    def __init__(self, secret: bytes) -> None:
        self._secret = _long_enough(secret)
        self._nonces = b""

    def reply(self, opening: bytes) -> bytes:
        if not opening.startswith(MAGIC):
            raise Unauthorised("whoever called does not speak this protocol")
        nonce = secrets.token_bytes(NONCE)
        self._nonces = opening[len(MAGIC) :] + nonce
        return MAGIC + nonce + _mac(self._secret, b"L", self._nonces)

    def finish(self, mac: bytes) -> FrameKeys:
        if not _equal(mac, _mac(self._secret, b"C", self._nonces)):
            raise Unauthorised("whoever called does not know the job's secret")
        return _keys(self._secret, self._nonces)


def call_out(stream: socket.socket, secret: bytes) -> FrameKeys:
    """The caller's part, on a blocking socket with a timeout."""
    caller = Caller(secret)
    stream.sendall(caller.opening)
    message = bytearray()
    while missing := OPENING + MAC - len(message):
        received = stream.recv(missing)
        if not received:
            raise ConnectionResetError("the connection was closed during the handshake")
        message += received
    mac, keys = caller.answer(bytes(message))
    stream.sendall(mac)
    return keys


def _mac(secret: bytes, side: bytes, nonces: bytes) -> bytes:
    return hmac.digest(secret, MAGIC + side + nonces, "sha256")


def _keys(secret: bytes, nonces: bytes) -> FrameKeys:
    return FrameKeys(_mac(secret, b"frames of C", nonces), _mac(secret, b"frames of L", nonces))


def _equal(mac: bytes, expected: bytes) -> bool:
    return hmac.compare_digest(mac, expected)


def _long_enough(secret: bytes) -> bytes:
    if len(secret) < SHORTEST_SECRET:
        raise ValueError(f"a job's secret has at least {SHORTEST_SECRET} bytes")
    return secret
