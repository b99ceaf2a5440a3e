"""What a run in a store begins with, written once: all who take part compute everything from it."""

import secrets
from functools import cached_property
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from folkmoot.authority.access import Access
from folkmoot.core.config import all_broken
from folkmoot.core.coordinator import Run
from folkmoot.core.unreadable import UNREADABLE

FORMAT = 1
NONCE_BYTES = 32


class Founding(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is written: the configuration, who may do what, and a number that nobody foresaw."""

    format: int
    run: Run
    owners: tuple[bytes, ...]
    allowed: tuple[bytes, ...]
    nonce: bytes


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(Founding).decode


class Genesis:
    """A founding, as the bytes that all who take part have read."""

    def __init__(self, data: bytes) -> None:
        """Raises `ValueError` when the bytes are no founding that this version can read."""
        try:
            self.founding = _decode(data)
        except UNREADABLE as error:
            raise ValueError(f"it is not the beginning of a run: {error}") from error
        if self.founding.format != FORMAT:
            raise ValueError(f"it was written by another version (format {self.founding.format})")
        if broken := next(all_broken(self.founding.run), None):
            raise ValueError(f"its configuration breaks a rule: {broken.field} {broken.reason}")
        self.data = data

    @property
    def run(self) -> Run:
        return self.founding.run

    @cached_property
    def digest(self) -> bytes:
        return sha256(self.data).digest()

    @cached_property
    def access(self) -> Access:
        return Access(frozenset(self.founding.allowed), frozenset(self.founding.owners))

    def same_run(self, run: Run, allowed: frozenset[bytes]) -> bool:
        """Whether somebody who would create `run` finds it created."""
        if not run.model.fingerprint:  # made where the data could not be read
            known = self.run.model.fingerprint
            run = replace(run, model=replace(run.model, fingerprint=known))
        return self.run == run and self.access.allowed == allowed


def found(run: Run, access: Access) -> Genesis:
    """The genesis of a new run."""
    owners, allowed = tuple(sorted(access.owners)), tuple(sorted(access.allowed))
    nonce = secrets.token_bytes(NONCE_BYTES)
    return Genesis(_encode(Founding(FORMAT, run, owners, allowed, nonce)))
