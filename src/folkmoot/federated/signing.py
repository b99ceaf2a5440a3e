"""Who speaks: Ed25519 identities, signed requests, and nonces that are taken once.

A signature covers the method, the run, the round, the coordinator's session, a nonce and the
SHA-256 of the request. The session is new whenever the coordinator starts, so what was heard
before a restart is worth nothing after it, and the nonces of a session fit in a small window.
"""

import os
import secrets
import time
from collections import OrderedDict
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

CONTEXT = b"folkmoot federation 1"
KEY_BYTES = 32
SESSION_BYTES = 16


class Unauthenticated(Exception):
    """A request that does not prove who sent it; the message says what is wrong."""


class Identity:
    """A participant's key. Its public half is who it is."""

    def __init__(self, private: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(private)
        self.public = self._key.public_key().public_bytes_raw()
        # Above every nonce of an earlier process with the same key, unless the clock went back.
        self._nonce = time.time_ns() // 1000

    @classmethod
    def random(cls) -> "Identity":
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Identity":
        """The key in `path` (64 hex digits), made and kept there when the file does not exist."""
        file = Path(path)
        try:
            text = file.read_text().strip()
        except FileNotFoundError:
            file.parent.mkdir(parents=True, exist_ok=True)
            text = secrets.token_hex(KEY_BYTES)
            fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "w") as out:
                out.write(text + "\n")
        try:
            return cls(bytes.fromhex(text))
        except ValueError:
            raise ValueError(f"{file} is not a key: expected 64 hex digits") from None

    @property
    def private_key(self) -> Ed25519PrivateKey:
        """For what is signed beside requests."""
        return self._key

    @property
    def participant_id(self) -> str:
        return self.public.hex()

    def leap(self) -> None:
        """Go on with nonces an hour ahead, past those of a life in which the clock was ahead."""
        self._nonce += 3_600_000_000

    def sign(self, method: str, request: Any, session: bytes) -> Any:
        """`request` with its proof; signed again from scratch each time it is sent."""
        self._nonce += 1
        proof = request.proof
        proof.public_key, proof.session, proof.nonce = self.public, session, self._nonce
        proof.signature = b""
        proof.signature = self._key.sign(signed_bytes(method, request))
        return request


def signed_bytes(method: str, request: Any) -> bytes:
    """What a signature covers. The request's own signature field must be empty."""
    payload = sha256(request.SerializeToString(deterministic=True)).digest()
    round_ = getattr(request, "round", 0)
    parts = (
        CONTEXT,
        method.encode(),
        request.run_id.encode(),
        round_.to_bytes(8, "little", signed=True),
        request.proof.session,
        request.proof.nonce.to_bytes(8, "little"),
        payload,
    )
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def verify(method: str, request: Any) -> bytes:
    """The public key that signed `request`; raises `Unauthenticated`."""
    signature = request.proof.signature
    if len(request.proof.public_key) != KEY_BYTES or len(signature) != 64:
        raise Unauthenticated("the request is not signed: proof needs a key and a signature")
    request.proof.signature = b""
    try:
        key = Ed25519PublicKey.from_public_bytes(request.proof.public_key)
        key.verify(signature, signed_bytes(method, request))
    except (InvalidSignature, ValueError):
        raise Unauthenticated(
            f"the signature does not fit this {method} request: it was altered, or signed for "
            "another method, run, round or session"
        ) from None
    finally:
        request.proof.signature = signature
    return bytes(request.proof.public_key)


class Nonces:
    """The nonces of one session, remembered in a window of the latest for each key."""

    WINDOW = 1024

    def __init__(self, keys: int = 131_072) -> None:
        self._keys = keys
        self._seen: OrderedDict[bytes, tuple[int, int]] = OrderedDict()

    def take(self, key: bytes, nonce: int) -> None:
        """Remember `nonce`, or raise `Unauthenticated` when it was taken or is too old to know."""
        highest, mask = self._seen.get(key, (0, 0))
        if nonce > highest:
            shift = nonce - highest
            mask = (mask << shift | 1) & (1 << self.WINDOW) - 1 if shift < self.WINDOW else 1
            highest = nonce
        else:
            age = highest - nonce
            if nonce == 0 or age >= self.WINDOW or mask >> age & 1:
                raise Unauthenticated(f"nonce {nonce} was used before: the request is a replay")
            mask |= 1 << age
        self._seen[key] = (highest, mask)
        self._seen.move_to_end(key)
        while len(self._seen) > self._keys:
            self._seen.popitem(last=False)
