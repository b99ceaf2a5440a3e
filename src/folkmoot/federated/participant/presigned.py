"""Weights through URLs that the coordinator signed: one to read, one to write, each for one object.

A participant then holds no right to the bucket at all. It can read the round's global model and
write its own update, and nothing else, for as long as the URLs are good.
"""

import http.client
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from blake3 import blake3

from folkmoot.federated.model_file.layout import Array, BadModel, encode_header, layout_of
from folkmoot.federated.participant.bucket import Arrays, as_weights_unavailable, chunks, decoded

PATIENCE = 60.0
READ = 1 << 20


class PresignedBucket:
    """Reads and writes one round's objects."""

    def __init__(self, get_url: str, put_url: str, max_object: int = 8 << 30) -> None:
        self._get, self._put, self._max_object = get_url, put_url, max_object

    @as_weights_unavailable()
    def read_global(self, round_: int, digest: bytes, stamp: bytes = b"") -> Arrays:
        """The round's global model, when its bytes are the ones announced."""
        with _request("GET", self._get) as answer:
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
            return decoded(f"{round_}/global", view.toreadonly(), digest)

    @as_weights_unavailable()
    def write_update(self, round_: int, participant_id: str, arrays: Mapping[str, Array]) -> bytes:
        """Put an update into the bucket; its digest."""
        layout = layout_of(arrays)
        size = len(encode_header(layout)) + sum(meta.nbytes for meta in layout.values())
        hasher = blake3()
        with _request("PUT", self._put, chunks(layout, arrays, hasher), size):
            return hasher.digest()


@contextmanager
def _request(
    method: str, url: str, body: Iterable[bytes] | None = None, size: int = 0
) -> Iterator[http.client.HTTPResponse]:
    """One HTTP request; an `OSError` with the answer's first words unless it went well."""
    parts = urllib.parse.urlsplit(url)
    secure = parts.scheme == "https"
    connect: Any = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    headers = {"Content-Length": str(size)} if body is not None else {}
    with closing(connect(parts.hostname, parts.port, timeout=PATIENCE)) as line:
        try:
            line.request(method, f"{parts.path}?{parts.query}", body, headers)
            answer: http.client.HTTPResponse = line.getresponse()
        except http.client.HTTPException as error:
            raise OSError(f"{method} failed: {error!r}") from error
        if answer.status != 200:
            said = answer.read(300).decode(errors="replace")
            raise OSError(f"{method} was answered {answer.status}: {said}")
        yield answer
