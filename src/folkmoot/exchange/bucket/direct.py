"""Objects of S3 read over connections of our own, through URLs that the store signs.

The store's own client copies what it reads twice and takes twice the CPU for a byte. This one reads
into the caller's memory. It is for what goes well: it tries nothing again, and where a request is
not answered with the object, `NotGiven` leaves it to the store's client, which knows what to try.
"""

import contextlib
import functools
import http.client
import re
import ssl
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import obstore
from obstore import exceptions
from obstore.store import S3Store

#: For which a URL is signed: a request that has begun may last longer.
GOOD_FOR = timedelta(minutes=15)
CONNECT = 5.0
#: Connections that are kept for the next request.
MOST_KEPT = 8
#: What a server that closed a connection meanwhile looks like to who uses it again.
STALE = (ConnectionError, ssl.SSLEOFError)
_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")
_SIZE = re.compile(r"\d{1,15}")


class NotGiven(Exception):
    """This way did not lead to the object; the store's own client may get it, or say why not."""


class Part:
    """A stretch of an object that is coming: `start` to `end` of `size` bytes."""

    def __init__(self, answer: http.client.HTTPResponse, done: Callable[[], None]) -> None:
        self._answer, self._done = answer, done
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
        if self._answer.length == 0:
            self._done()


class DirectReads:
    """Reads from one store. It is safe to call from many threads."""

    def __init__(self, store: S3Store, patience: float) -> None:
        self._store, self._patience = store, patience
        self._kept: list[tuple[str, Any]] = []
        self._lock = threading.Lock()

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    @contextlib.contextmanager
    def part(self, key: str, start: int, end: int, tag: str = "") -> Iterator[Part]:
        """Bytes `start` to `end` of an object, or fewer where it ends; of the one with this tag."""
        headers = {"Range": f"bytes={start}-{end - 1}"} | ({"If-Match": tag} if tag else {})
        try:
            url = str(obstore.sign(self._store, "GET", key, GOOD_FOR))
            server, line, answer = self._asked(urllib.parse.urlsplit(url), headers)
        except (exceptions.BaseError, OSError, http.client.HTTPException) as error:
            raise NotGiven(str(error)) from error
        whole = threading.Event()
        try:
            if answer.status not in (200, 206):
                raise NotGiven(f"answered {answer.status}")
            yield Part(answer, whole.set)
        finally:
            if not (whole.is_set() and self._keep(server, line, answer)):
                line.close()

    def _asked(
        self, url: urllib.parse.SplitResult, headers: dict[str, str]
    ) -> tuple[str, Any, http.client.HTTPResponse]:
        server, target = f"{url.scheme}://{url.netloc}", f"{url.path}?{url.query}"
        while (line := self._taken(server)) is not None:
            with contextlib.suppress(*STALE):
                return server, line, _ask(line, target, headers)
        if url.scheme == "https":
            line = http.client.HTTPSConnection(
                url.hostname or "", url.port, timeout=CONNECT, context=self._tls
            )
        else:
            line = http.client.HTTPConnection(url.hostname or "", url.port, timeout=CONNECT)
        line.connect()
        line.sock.settimeout(self._patience)
        return server, line, _ask(line, target, headers)

    def _taken(self, server: str) -> Any:
        with self._lock:
            for place, (name, line) in enumerate(self._kept):
                if name == server:
                    del self._kept[place]
                    return line
        return None

    def _keep(self, server: str, line: Any, answer: http.client.HTTPResponse) -> bool:
        if answer.will_close:
            return False
        answer.close()
        with self._lock:
            self._kept.append((server, line))
            dropped = self._kept.pop(0) if len(self._kept) > MOST_KEPT else None
        if dropped is not None:
            dropped[1].close()
        return True


def direct_reads(store: Any, options: dict[str, str], patience: float) -> DirectReads | None:
    """For a store whose URLs can be signed and asked for without a detour."""
    unsigned = any("skip_signature" in name.lower() for name in options)
    if not isinstance(store, S3Store) or unsigned or urllib.request.getproxies():
        return None
    return DirectReads(store, patience)


def _ask(line: Any, target: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    try:
        line.request("GET", target, headers=headers)
        answer: http.client.HTTPResponse = line.getresponse()
        return answer
    except BaseException:
        line.close()
        raise
