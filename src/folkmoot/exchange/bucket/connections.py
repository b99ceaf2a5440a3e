"""HTTP requests over connections that are kept: a handshake is dear beside a small object."""

import contextlib
import functools
import http.client
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from OpenSSL import SSL

from folkmoot.host.corked import corked
from folkmoot.host.tls import ClientTls
from folkmoot.host.tls_socket import TlsSocket, client_context

Body = Callable[[], Iterable[bytes | bytearray | memoryview]]
"""What is sent, from its beginning each time it is asked for."""
#: Connections that are kept for the next request.
MOST_KEPT = 8
#: What a server that closed a connection meanwhile looks like to who uses it again.
STALE = (ConnectionError, ssl.SSLEOFError)


class KeptConnections:
    """Connections to any servers. It is safe to call from many threads.

    `connect` and `patience`: seconds to wait for a server that accepts no connection, and for one
    that says nothing over it.
    """

    def __init__(self, connect: float, patience: float) -> None:
        self._connect, self._patience = connect, patience
        self._kept: list[tuple[str, Any]] = []
        self._lock = threading.Lock()

    @functools.cached_property
    def _tls(self) -> SSL.Context:
        return client_context(ClientTls())

    @contextlib.contextmanager
    def request(
        self, method: str, url: str, headers: Mapping[str, str], body: Body | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer to one request that may be made twice; an `OSError` when there is none.

        The connection is kept when all of the answer was read and the block ended well.
        """
        parts = urllib.parse.urlsplit(url)
        server = f"{parts.scheme}://{parts.netloc}"
        line, answer = self._asked(server, parts, method, headers, body)
        try:
            yield answer
            if _is_whole(answer) and not answer.will_close:
                answer.close()
                self._keep(server, line)
                line = None
        finally:
            if line is not None:
                line.close()

    def close(self) -> None:
        """Of those that are kept; others are closed by who uses them."""
        with self._lock:
            kept, self._kept = self._kept, []
        for _, line in kept:
            line.close()

    def _asked(
        self,
        server: str,
        url: urllib.parse.SplitResult,
        method: str,
        headers: Mapping[str, str],
        body: Body | None,
    ) -> tuple[Any, http.client.HTTPResponse]:
        asked = method, f"{url.path}?{url.query}", headers, body
        while (line := self._taken(server)) is not None:
            with contextlib.suppress(*STALE):
                return line, _ask(line, *asked)
        if url.scheme == "https":
            line = _TlsConnection(url.hostname or "", url.port, self._connect, self._tls)
        else:
            line = http.client.HTTPConnection(url.hostname or "", url.port, timeout=self._connect)
        try:
            line.connect()
        except BaseException:
            line.close()
            raise
        line.sock.settimeout(self._patience)
        return line, _ask(line, *asked)

    def _taken(self, server: str) -> Any:
        with self._lock:
            for place, (name, line) in enumerate(self._kept):
                if name == server:
                    del self._kept[place]
                    return line
        return None

    def _keep(self, server: str, line: Any) -> None:
        with self._lock:
            self._kept.append((server, line))
            dropped = self._kept.pop(0) if len(self._kept) > MOST_KEPT else None
        if dropped is not None:
            dropped[1].close()


class _TlsConnection(http.client.HTTPConnection):
    default_port = http.client.HTTPS_PORT
    sock: Any

    def __init__(self, host: str, port: int | None, timeout: float, tls: SSL.Context) -> None:
        super().__init__(host, port, timeout=timeout)
        self._tls = tls

    def connect(self) -> None:
        super().connect()
        self.sock = TlsSocket.connect(self._tls, self.sock, self.host)


def _is_whole(answer: http.client.HTTPResponse) -> bool:
    return answer.length == 0 or (answer.length is None and answer.isclosed())


def _ask(
    line: Any, method: str, target: str, headers: Mapping[str, str], body: Body | None
) -> http.client.HTTPResponse:
    try:
        if body is None:
            line.request(method, target, None, headers)
        else:
            with corked(line.sock):
                line.request(method, target, body(), headers)
        answer: http.client.HTTPResponse = line.getresponse()
        return answer
    except BaseException as error:
        line.close()
        if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
            raise OSError(f"{method} failed: {error!r}") from error
        raise
