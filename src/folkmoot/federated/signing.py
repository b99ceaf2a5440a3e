"""Signed requests of participants.

A signature covers the method, the run, the round, the coordinator's session, a nonce and the
SHA-256 of the request. The session is new whenever the coordinator starts, so what was heard
before a restart is worth nothing after it.
"""

from hashlib import sha256
from typing import Any

from folkmoot.host import signing
from folkmoot.host.signing import KEY_BYTES, Signer, Unauthenticated, framed

CONTEXT = b"folkmoot federation 1"


def sign_request(signer: Signer, method: str, request: Any, session: bytes) -> Any:
    """`request` with its proof."""
    signer.sign(request.proof, session, lambda: signed_bytes(method, request))
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


def verify_request(method: str, request: Any) -> bytes:
    """The public key that signed `request`; raises `Unauthenticated`."""
    signature = request.proof.signature
    if len(request.proof.public_key) != KEY_BYTES or len(signature) != 64:
        raise Unauthenticated("the request is not signed: proof needs a key and a signature")
    request.proof.signature = b""
    try:
        signing.verify(request.proof.public_key, signature, signed_bytes(method, request))
    finally:
        request.proof.signature = signature
    return bytes(request.proof.public_key)
