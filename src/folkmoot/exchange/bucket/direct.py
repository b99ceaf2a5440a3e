"""Objects of S3 read and written over connections of our own, through URLs that the store signs.

The store's own client copies what it carries and takes twice the CPU for a byte. This one reads
into the caller's memory and writes from it. It is for what goes well: it tries nothing again, and
where a request is not answered as it should be, `NotGiven` leaves it to the store's client, which
knows what to try.
"""

import contextlib
import http.client
import os
import re
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal

import obstore
from obstore import exceptions
from obstore.store import S3Store

from folkmoot.exchange.bucket.connections import Body, KeptConnections

#: For which a URL is signed: a request that has begun may last longer.
GOOD_FOR = timedelta(minutes=15)
CONNECT = 5.0
#: Of what a store says of an object that it took.
MOST_SAID = 1 << 16
_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")
_SIZE = re.compile(r"\d{1,15}")
#: In the names of options and of the environment's variables.
_OF_A_BODY = re.compile(r"(^|_)(sse|encryption|checksum)(_|$)")


class NotGiven(Exception):
    """This way did not lead to the object; the store's own client may do it, or say why not."""


class Part:
    """A stretch of an object that is coming: `start` to `end` of `size` bytes."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer
        self.tag = answer.headers.get("ETag", "")
        told = answer.headers.get("Content-Range", "")
        # Some servers, as rclone's, send a part with the status of a whole object.
        if told or answer.status == 206:
            found = _RANGE.fullmatch(told)
            if found is None:
                raise NotGiven("a part without its range")
            self.start, self.end, self.size = int(found[1]), int(found[2]) + 1, int(found[3])
        else:
            if not _SIZE.fullmatch(length := answer.headers.get("Content-Length", "")):
                raise NotGiven("an object without its size")
            self.start, self.end, self.size = 0, int(length), int(length)

    def read_into(self, view: memoryview) -> None:
        """Fill it; OSError when the answer ends before."""
        done = 0
        try:
            while done < len(view):
                got = self._answer.readinto(view[done:])
                if not got:
                    raise ConnectionError("the answer ended before it was whole")
                done += got
        except http.client.HTTPException as error:
            raise ConnectionError(f"not an answer: {error!r}") from error


class Direct:
    """Requests to one store. It is safe to call from many threads."""

    def __init__(self, store: S3Store, patience: float, *, writes: bool) -> None:
        self._store, self._connections = store, KeptConnections(CONNECT, patience)
        self._writes = writes

    @contextlib.contextmanager
    def part(self, key: str, start: int, end: int, tag: str = "") -> Iterator[Part]:
        """Bytes `start` to `end` of an object, or fewer where it ends; of the one with this tag."""
        headers = {"Range": f"bytes={start}-{end - 1}"} | ({"If-Match": tag} if tag else {})
        with self._answer("GET", key, headers) as answer:
            yield Part(answer)

    def put(self, key: str, size: int, body: Body) -> None:
        """Store an object of so many bytes, whole."""
        if not self._writes:
            raise NotGiven("more is asked of a body than a signed URL says")
        with self._answer("PUT", key, {"Content-Length": str(size)}, body) as answer:
            answer.read(MOST_SAID)

    @contextlib.contextmanager
    def _answer(
        self,
        method: Literal["GET", "PUT"],
        key: str,
        headers: Mapping[str, str],
        body: Body | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        with contextlib.ExitStack() as stack:
            try:
                url = str(obstore.sign(self._store, method, key, GOOD_FOR))
                asked = self._connections.request(method, url, headers, body)
                answer = stack.enter_context(asked)
            except (exceptions.BaseError, OSError) as error:
                raise NotGiven(str(error)) from error
            if answer.status not in (200, 206):
                raise NotGiven(f"answered {answer.status}")
            yield answer


def direct(store: Any, options: dict[str, str], patience: float) -> Direct | None:
    """For a store whose URLs can be signed and asked for without a detour."""
    unsigned = any("skip_signature" in name.lower() for name in options)
    if not isinstance(store, S3Store) or unsigned or urllib.request.getproxies():
        return None
    return Direct(store, patience, writes=_only_the_body(options))


def _only_the_body(options: dict[str, str]) -> bool:
    """Whether nobody asks that a body be signed, hashed, or encrypted by the store.

    A signed URL says nothing of the body. Without TLS it must be signed (see `open_store`).
    """
    given = {name.lower(): value for name, value in options.items()}
    told = [*given, *(name.lower() for name in os.environ if name.startswith("AWS_"))]
    signed = [
        value.lower() != "true" for name, value in given.items() if "unsigned_payload" in name
    ]
    return signed == [False] and not any(map(_OF_A_BODY.search, told))
