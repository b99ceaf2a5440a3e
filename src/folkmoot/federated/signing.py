"""Signed requests of participants.

A signature covers the method, the run, the round, the coordinator's session, a nonce and the
SHA-256 of the request. The session is new whenever the coordinator starts, so what was heard
before a restart is worth nothing after it.
"""

import time
from hashlib import sha256
from typing import Any

from folkmoot.host.signing import (
    KEY_BYTES,
    SESSION_BYTES,
    Identity,
    Nonces,
    Unauthenticated,
    framed,
)
from folkmoot.host.signing import verify as verify_bytes

__all__ = ["SESSION_BYTES", "Identity", "Nonces", "Signer", "Unauthenticated", "verify"]

CONTEXT = b"folkmoot federation 1"


class Signer:
    """Signs an identity's requests, each with a nonce of its own."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        # Above every nonce of an earlier process with the same key, unless the clock went back.
        self._nonce = time.time_ns() // 1000

    def leap(self) -> None:
        """Go on with nonces an hour ahead, past those of a life in which the clock was ahead."""
        self._nonce += 3_600_000_000

    def sign(self, method: str, request: Any, session: bytes) -> Any:
        """`request` with its proof; signed again from scratch each time it is sent."""
        self._nonce += 1
        proof = request.proof
        proof.public_key, proof.session = self.identity.public, session
        proof.nonce, proof.signature = self._nonce, b""
        proof.signature = self.identity.sign(signed_bytes(method, request))
        return request


def signed_bytes(method: str, request: Any) -> bytes:
    """What a signature covers. The request's own signature field must be empty."""
    return framed(
        CONTEXT,
        method.encode(),
        request.run_id.encode(),
        getattr(request, "round", 0).to_bytes(8, "little", signed=True),
        request.proof.session,
        request.proof.nonce.to_bytes(8, "little"),
        sha256(request.SerializeToString(deterministic=True)).digest(),
    )


def verify(method: str, request: Any) -> bytes:
    """The public key that signed `request`; raises `Unauthenticated`."""
    signature = request.proof.signature
    if len(request.proof.public_key) != KEY_BYTES or len(signature) != 64:
        raise Unauthenticated("the request is not signed: proof needs a key and a signature")
    request.proof.signature = b""
    try:
        verify_bytes(request.proof.public_key, signature, signed_bytes(method, request))
    finally:
        request.proof.signature = signature
    return bytes(request.proof.public_key)
