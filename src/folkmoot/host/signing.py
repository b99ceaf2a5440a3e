"""Who speaks: Ed25519 identities, and nonces that are taken once.

A signature covers a context, every field it speaks for, the session of whoever checks it, and a
nonce. The session is new whenever that one starts, so what was heard before a restart is worth
nothing after it, and the nonces of a session fit in a small window.
"""

import contextlib
import json
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from folkmoot.host.files import StagedFile, read_text

KEY_BYTES = 32
SESSION_BYTES = 16


class Unauthenticated(Exception):
    """A request that does not prove who sent it; the message says what is wrong."""


def load_secret(path: str | os.PathLike[str], first: str = "") -> bytes:
    """The 32 bytes in `path` (64 hex digits). A missing file is made: with `first`, or at random.

    It appears whole or not at all, and only its owner can read it.
    """
    file = Path(path)
    if not file.exists():
        with contextlib.suppress(FileExistsError), StagedFile(file) as staged:
            staged.staging.chmod(0o600)
            staged.write(f"{first or secrets.token_hex(KEY_BYTES)}\n".encode())
            staged.commit(create=True)
    try:
        secret = _secret(read_text(file).strip())
    except ValueError:
        secret = b""
    if len(secret) != KEY_BYTES:
        raise ValueError(f"{file} is not a key: expected 64 hex digits, or a Solana keypair")
    return secret


def _secret(text: str) -> bytes:
    """Of a key in hex; or of a keypair as Solana's tools write it, a list of both its halves."""
    if not text.startswith("["):
        return bytes.fromhex(text)
    try:
        pair = bytes(json.loads(text))
    except TypeError:
        raise ValueError("not a list of numbers") from None
    return pair[:KEY_BYTES] if len(pair) == 2 * KEY_BYTES else b""


class Identity:
    """A key. Its public half is who its owner is."""

    def __init__(self, private: bytes) -> None:
        self.private = private
        self.private_key = Ed25519PrivateKey.from_private_bytes(private)
        self.public = self.private_key.public_key().public_bytes_raw()

    @classmethod
    def random(cls) -> "Identity":
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Identity":
        """The key in `path` (64 hex digits), made and kept there when the file does not exist."""
        return cls(load_secret(path))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Identity":
        """The key in `path`; a file that is not there is an error, not a new key."""
        if not Path(path).exists():
            raise FileNotFoundError(
                f"there is no key {os.fspath(path)}: is the name right? `folkmoot key` makes one"
            )
        return cls(load_secret(path))

    def sign(self, data: bytes) -> bytes:
        return self.private_key.sign(data)


class Signer:
    """Signs an identity's requests, each with a nonce of its own, from whatever thread."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        # Above every nonce of an earlier process with the same key, unless the clock went back.
        self._nonce = time.time_ns() // 1000
        self._ahead = 3_600_000_000
        self._lock = threading.Lock()

    def leap(self) -> None:
        """Go on with nonces an hour ahead, past those of a life in which the clock was ahead.

        Each time twice as far: it may have been ahead by days.
        """
        self._nonce += self._ahead
        self._ahead *= 2

    def sign(self, proof: Any, session: bytes, signed_bytes: Callable[[], bytes]) -> None:
        """Fill in a request's `proof`; signed again from scratch each time it is sent.

        `signed_bytes` gives what the signature covers, once all but the signature is there.
        """
        with self._lock:
            self._nonce += 1
            proof.nonce = self._nonce
        proof.public_key, proof.session, proof.signature = self.identity.public, session, b""
        proof.signature = self.identity.sign(signed_bytes())


def framed(*parts: bytes) -> bytes:
    """Parts joined so that no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def verify(public: bytes, signature: bytes, data: bytes) -> None:
    """Raise `Unauthenticated` unless `public` signed `data`."""
    try:
        _public_key(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        raise Unauthenticated(
            "the signature does not fit: the request was altered, or signed for something else"
        ) from None


@lru_cache(maxsize=4096)
def _public_key(public: bytes) -> Ed25519PublicKey:
    """Kept, since the same few speak again and again: to decode a key is a seventh of a check."""
    return Ed25519PublicKey.from_public_bytes(public)


class Nonces:
    """The nonces of one session, remembered in a window of the latest for each key."""

    WINDOW = 1024

    def __init__(self, keys: int = 131_072) -> None:
        self._keys = keys
        self._seen: OrderedDict[bytes, tuple[int, int]] = OrderedDict()

    def refuse_used(self, key: bytes, nonce: int) -> None:
        """Raise `Unauthenticated` when `nonce` was taken or is too old to know."""
        highest, mask = self._seen.get(key, (0, 0))
        age = highest - nonce
        if nonce == 0 or (age >= 0 and (age >= self.WINDOW or mask >> age & 1)):
            raise Unauthenticated(f"nonce {nonce} was used before: the request is a replay")

    def take(self, key: bytes, nonce: int) -> None:
        """Remember `nonce`, or refuse it. Only of what is signed, or others could use them up."""
        self.refuse_used(key, nonce)
        highest, mask = self._seen.get(key, (0, 0))
        if nonce > highest:
            shift = nonce - highest
            mask = (mask << shift | 1) & (1 << self.WINDOW) - 1 if shift < self.WINDOW else 1
            highest = nonce
        else:
            mask |= 1 << highest - nonce
        self._seen[key] = (highest, mask)
        self._seen.move_to_end(key)
        while len(self._seen) > self._keys:
            self._seen.popitem(last=False)
