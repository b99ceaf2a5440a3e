"""Weights through URLs that the coordinator signed: one to read, one to write, each for one object.

A participant then holds no right to the bucket at all. It can read the round's global model and
write its own update, and nothing else, for as long as the URLs are good. Its connection is kept
from round to round: a handshake is dear beside a small model.
"""

import contextlib
import http.client
import ssl
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from blake3 import blake3

from folkmoot.federated.model_file.layout import Array, BadModel, encode_header, layout_of
from folkmoot.federated.participant.bucket import Arrays, as_weights_unavailable, chunks, decoded

PATIENCE = 60.0
READ = 1 << 20
Body = Callable[[], Iterable[bytes]]
Asked = tuple[Any, http.client.HTTPResponse]
#: What a server that closed a connection meanwhile looks like to who uses it again.
STALE = (ConnectionError, ssl.SSLEOFError)


class KeptConnection:
    """The connection that was used last, kept for the next request to the same server."""

    def __init__(self) -> None:
        self._kept: tuple[str, Any] | None = None

    @contextlib.contextmanager
    def request(
        self, method: str, url: str, body: Body | None = None, size: int = 0
    ) -> Iterator[http.client.HTTPResponse]:
        """One HTTP request; an `OSError` with the answer's first words unless it went well."""
        line, answer = self._asked(method, urllib.parse.urlsplit(url), body, size)
        try:
            if answer.status != 200:
                said = answer.read(300).decode(errors="replace")
                raise OSError(f"{method} was answered {answer.status}: {said}")
            yield answer
            if answer.isclosed() and not answer.will_close:  # all of it was read
                self.close()
                self._kept, line = (_server(url), line), None
        finally:
            if line is not None:
                line.close()

    def close(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()

    def _asked(
        self, method: str, url: urllib.parse.SplitResult, body: Body | None, size: int
    ) -> Asked:
        kept, self._kept = self._kept, None
        if kept is not None and kept[0] == _server(url.geturl()):
            # Each request is for one object and gives it the same bytes: it may be made twice.
            with contextlib.suppress(*STALE):
                return _ask(kept[1], method, url, body, size)
        elif kept is not None:
            kept[1].close()
        secure = url.scheme == "https"
        connect: Any = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return _ask(connect(url.hostname, url.port, timeout=PATIENCE), method, url, body, size)


class PresignedBucket:
    """Reads and writes one round's objects."""

    def __init__(
        self,
        get_url: str,
        put_url: str,
        max_object: int = 8 << 30,
        line: KeptConnection | None = None,
    ) -> None:
        self._get, self._put, self._max_object = get_url, put_url, max_object
        self._line = line or KeptConnection()

    @as_weights_unavailable()
    def read_global(self, round_: int, digest: bytes, stamp: bytes = b"") -> Arrays:
        """The round's global model, when its bytes are the ones announced."""
        with self._line.request("GET", self._get) as answer:
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

        def body() -> Iterable[bytes]:
            hasher.reset()
            return chunks(layout, arrays, hasher)

        with self._line.request("PUT", self._put, body, size) as answer:
            answer.read(READ)
            return hasher.digest()


def _ask(
    line: Any, method: str, url: urllib.parse.SplitResult, body: Body | None, size: int
) -> Asked:
    headers = {} if body is None else {"Content-Length": str(size)}
    try:
        line.request(method, f"{url.path}?{url.query}", body and body(), headers)
        return line, line.getresponse()
    except BaseException as error:
        line.close()
        if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
            raise OSError(f"{method} failed: {error!r}") from error
        raise


def _server(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
