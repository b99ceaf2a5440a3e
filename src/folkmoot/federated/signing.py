"""Signed requests of participants, and the coordinator's sealed answers.

A request's signature covers the method, the run, the round, the coordinator's session, a nonce and
the SHA-256 of the request. The session is new whenever the coordinator starts, so what was heard
before a restart is worth nothing after it.

An answer's seal covers the method, the run, the signature of the request it answers, and the
SHA-256 of the answer. A request is signed once, so no answer can pass for that to another request.
"""

from hashlib import sha256
from typing import Any

from folkmoot.host import signing
from folkmoot.host.signing import KEY_BYTES, Identity, Signer, Unauthenticated, framed

CONTEXT = b"folkmoot federation 1"
ANSWER_CONTEXT = b"folkmoot federation answer 1"
SIGNATURE_BYTES = 64


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
    proof = request.proof
    if not _signed(proof):
        raise Unauthenticated("the request is not signed: proof needs a key and a signature")
    return _verify(proof, lambda: signed_bytes(method, request))


def seal_answer(identity: Identity, method: str, request: Any, answer: Any) -> Any:
    """`answer` with the coordinator's seal."""
    answer.seal.public_key, answer.seal.signature = identity.public, b""
    answer.seal.signature = identity.sign(sealed_bytes(method, request, answer))
    return answer


def sealed_bytes(method: str, request: Any, answer: Any) -> bytes:
    """What a seal covers. The answer's own signature field must be empty."""
    return framed(
        ANSWER_CONTEXT,
        method.encode(),
        request.run_id.encode(),
        request.proof.signature,
        sha256(answer.SerializeToString(deterministic=True)).digest(),
    )


def verify_answer(method: str, request: Any, answer: Any) -> bytes:
    """The public key that sealed `answer`; raises `Unauthenticated`."""
    if not _signed(answer.seal):
        raise Unauthenticated("the answer is not sealed by a coordinator")
    return _verify(answer.seal, lambda: sealed_bytes(method, request, answer))


def _signed(claim: Any) -> bool:
    return len(claim.public_key) == KEY_BYTES and len(claim.signature) == SIGNATURE_BYTES


def _verify(claim: Any, covered: Any) -> bytes:
    """The key that a proof or a seal names, when its signature fits what it covers."""
    signature, claim.signature = claim.signature, b""
    try:
        signing.verify(claim.public_key, signature, covered())
    finally:
        claim.signature = signature
    return bytes(claim.public_key)
