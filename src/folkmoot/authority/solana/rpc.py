"""JSON-RPC to a cluster through any of several nodes: who does not answer is passed over.

A node may also be behind what its caller knows to have happened (`minContextSlot`): another one is
asked, and all of them again after a moment.
"""

import asyncio
import json
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from folkmoot.authority import Unreachable

TIMEOUT = 10.0
ANSWER_MAX = 4 * 1024 * 1024
CALLS_AT_ONCE = 4
BEHIND = -32016  # "Minimum context slot has not been reached"
BEHIND_WAITS = (0.25,) * 80


class RpcRefused(Exception):
    """A node answered with an error; `data` is what it adds."""

    def __init__(self, code: int, message: str, data: Any) -> None:
        super().__init__(message)
        self.code, self.data = code, data if isinstance(data, dict) else {}

    @property
    def transaction_error(self) -> Any:
        """Why the transaction would fail, when that is what it says."""
        return self.data.get("err")


class Behind(Unreachable):
    """Those who answer do not know yet what the caller does."""


class Rpc:
    """Nodes of one cluster. The one that answered last is asked first."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = list(urls)
        self._first = 0
        self._numbers = count(1)
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, "solana rpc")
        self.sent = self.received = 0

    async def call(self, method: str, *params: Any) -> Any:
        """The result. Raises `RpcRefused`, or `Unreachable` when no node gives an answer."""
        body = json.dumps(
            {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        ).encode()
        for wait in BEHIND_WAITS:
            try:
                return await self._ask(body)
            except Behind:
                await asyncio.sleep(wait)
        return await self._ask(body)

    async def _ask(self, body: bytes) -> Any:
        loop, troubles, behind = asyncio.get_running_loop(), [], False
        for turn in range(len(self.urls)):
            at = (self._first + turn) % len(self.urls)
            try:
                answer = await loop.run_in_executor(self._threads, self._post, self.urls[at], body)
            except (OSError, HTTPException, ValueError) as error:
                troubles.append(f"{self.urls[at]}: {error or type(error).__name__}")
                continue
            if _is_behind(answer):
                behind = True
                troubles.append(f"{self.urls[at]}: it is behind the cluster")
                continue
            self._first = at
            return _result(answer)
        raise (Behind if behind else Unreachable)("; ".join(troubles))

    @property
    def url(self) -> str:
        """The node that is asked first."""
        return self.urls[self._first]

    def pass_over(self, url: str) -> None:
        """Ask another node first from now on."""
        if url == self.url:
            self._first = (self._first + 1) % len(self.urls)

    def _post(self, url: str, body: bytes) -> Any:
        parts = urlsplit(url)
        assert parts.hostname
        connection: HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = HTTPSConnection(
                parts.hostname, parts.port, timeout=TIMEOUT, context=context
            )
        else:
            connection = HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise OSError(f"HTTP {response.status} {response.reason}")
            answer = response.read(ANSWER_MAX + 1)
        finally:
            connection.close()
        self.sent += len(body)
        self.received += len(answer)
        if len(answer) > ANSWER_MAX:
            raise OSError(f"an answer of more than {ANSWER_MAX} bytes")
        return json.loads(answer)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _is_behind(answer: Any) -> bool:
    error = answer.get("error") if isinstance(answer, dict) else None
    return isinstance(error, dict) and error.get("code") == BEHIND


def _result(answer: Any) -> Any:
    if not isinstance(answer, dict):
        raise Unreachable("a node answers with something that is not JSON-RPC")
    error = answer.get("error")
    if isinstance(error, dict):
        message = str(error.get("message", ""))[:500]
        raise RpcRefused(int(error.get("code", 0)), message, error.get("data"))
    return answer.get("result")
