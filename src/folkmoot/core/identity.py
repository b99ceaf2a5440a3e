"""Who speaks: a client is its Ed25519 public key. Signatures are checked by the shell."""

from hashlib import sha256

ID_BYTES = 32


def short(identity: bytes) -> str:
    """The first four bytes in hex, enough to tell clients apart in a log."""
    return identity[:4].hex()


def gossip_topic(run_id: str) -> bytes:
    """The topic that a run's clients gossip under."""
    return sha256(b"psyche gossip" + run_id.encode()).digest()
