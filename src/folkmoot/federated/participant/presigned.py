"""Weights through URLs that the coordinator signed: one to read, one to write, each for one object.

A participant then holds no right to the bucket at all. It can read the round's global model and
write its own update, and nothing else, for as long as the URLs are good.
"""

from collections.abc import Mapping
from http.client import HTTPResponse

from blake3 import blake3

from folkmoot.exchange.bucket.connections import KeptConnections
from folkmoot.federated.model_file.layout import Array, BadModel
from folkmoot.federated.model_file.outgoing import OutgoingModel
from folkmoot.federated.participant.bucket import (
    Arrays,
    as_weights_unavailable,
    decoded,
)

PATIENCE = 60.0
READ = 1 << 20


def kept_connections() -> KeptConnections:
    """For all rounds of a participant."""
    return KeptConnections(connect=PATIENCE, patience=PATIENCE)


class PresignedBucket:
    """Reads and writes one round's objects."""

    def __init__(
        self,
        get_url: str,
        put_url: str,
        max_object: int = 8 << 30,
        connections: KeptConnections | None = None,
    ) -> None:
        self._get, self._put, self._max_object = get_url, put_url, max_object
        self._connections = connections or kept_connections()

    @as_weights_unavailable()
    def read_global(self, round_: int, digest: bytes, stamp: bytes = b"") -> Arrays:
        """The round's global model, when its bytes are the ones announced."""
        with self._connections.request("GET", self._get, {}) as answer:
            _must_be_200("GET", answer)
            announced = answer.headers.get("Content-Length", "")
            size = int(announced) if announced.isdecimal() and len(announced) < 16 else -1
            if not 0 <= size <= self._max_object:
                raise BadModel(f"the global model is announced with {size} bytes")
            body = bytearray(size)
            view, done = memoryview(body), 0
            while done < size and (got := answer.readinto(view[done : done + READ])):
                done += got
            if done < size:
                raise BadModel(f"the global model ends after {done} of {size} bytes")
            return decoded(f"{round_}/global", view.toreadonly(), digest, blake3(view).digest())

    @as_weights_unavailable()
    def write_update(self, round_: int, participant_id: str, arrays: Mapping[str, Array]) -> bytes:
        """Put an update into the bucket; its digest."""
        body = OutgoingModel(arrays)
        headers = {"Content-Length": str(body.size)}
        with self._connections.request("PUT", self._put, headers, body.pieces) as answer:
            _must_be_200("PUT", answer)
            answer.read(READ)
            return body.digest()


def _must_be_200(method: str, answer: HTTPResponse) -> None:
    if answer.status != 200:
        said = answer.read(300).decode(errors="replace")
        raise OSError(f"{method} was answered {answer.status}: {said}")
