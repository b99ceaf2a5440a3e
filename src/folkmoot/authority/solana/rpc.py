"""JSON-RPC to a cluster through any of several nodes, all of them strangers.

Who does not answer, or not with what was asked for, is passed over for the next one. A node may
also be behind what its caller knows to have happened (`minContextSlot`): another one is asked, and
all of them again after a moment.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeVar

import msgspec

from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.solana.place import named
from folkmoot.authority.solana.post import post
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.host.plain_text import plain_text

BEHIND = -32016  # "Minimum context slot has not been reached"
BEHIND_WAITS = (0.25,) * 80
# The codes with which a node answers for the cluster: the transaction would fail, or is not signed.
REFUSALS = (-32002, -32003)
T = TypeVar("T")
Read = Callable[[msgspec.Raw], T]


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: Any = None


class _Answer(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: _Error | None = None


class TransactionRefused(Exception):
    """The cluster would not run the transaction; `error` is why, as JSON-RPC tells it."""

    def __init__(self, message: str, error: Any) -> None:
        super().__init__(message)
        self.error = error


class NodesBehind(Unreachable):
    """Those who answer do not know yet what the caller does."""


class Rpc:
    """Nodes of one cluster. The one that answered last is asked first."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = list(urls)
        self._first = self._other = 0
        self._numbers = count(1)
        self.since = 0
        """The slot of our newest transaction: no node is to answer from before it."""
        self.sent = self.received = 0

    async def call(self, read: Read[T], method: str, *params: Any) -> T:
        """What `read` makes of the result.

        A node whose answer `read` refuses (`Denied`, `ValueError`) is passed over too. Raises
        `Denied` when all nodes give such an answer, `TransactionRefused`, or `Unreachable`.
        """
        for wait in BEHIND_WAITS:
            try:
                return await self._ask_in_turn(read, method, params)
            except NodesBehind:
                await asyncio.sleep(wait)
        try:
            return await self._ask_in_turn(read, method, params)
        except NodesBehind:
            self.since = 0  # whoever told of that slot was wrong, or the cluster forgot it
            raise

    async def ask_another(self, read: Read[T], method: str, *params: Any) -> tuple[str, T]:
        """(url, result) of a node that is not asked first, another one each time."""
        self._other = (self._other + 1) % len(self.urls)
        if self._other == self._first:
            self._other = (self._other + 1) % len(self.urls)
        url = self.urls[self._other]
        return url, await self._ask(url, read, method, params)

    @property
    def url(self) -> str:
        """The node that is asked first."""
        return self.urls[self._first]

    def ask_first(self, url: str) -> None:
        self._first = self.urls.index(url)

    def pass_over(self, url: str) -> None:
        """Ask another node first from now on."""
        if url == self.url:
            self._first = (self._first + 1) % len(self.urls)

    async def _ask_in_turn(self, read: Read[T], method: str, params: Any) -> T:
        first, troubles = self._first, list[Unreachable | Denied]()
        for at in ((first + turn) % len(self.urls) for turn in range(len(self.urls))):
            try:
                result = await self._ask(self.urls[at], read, method, params)
            except (Unreachable, Denied) as error:
                troubles.append(error)
                continue
            except TransactionRefused:
                self._first = at
                raise
            self._first = at
            return result
        kind = type(troubles[0]) if len({type(error) for error in troubles}) == 1 else Unreachable
        if any(isinstance(error, NodesBehind) for error in troubles):
            kind = NodesBehind
        raise kind("; ".join(dict.fromkeys(map(str, troubles))))

    async def _ask(self, url: str, read: Read[T], method: str, params: Any) -> T:
        asked = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        body = json.dumps(asked).encode()
        self.sent += len(body)
        try:
            told = await post(url, body)
            self.received += len(told)
            answer = msgspec.json.decode(told, type=_Answer)
            if answer.error is None:
                return read(answer.result)
        except OSError as error:
            raise Unreachable(f"{named(url)}: {_why(error)}") from None
        except (*UNREADABLE, ValueError) as error:
            why = plain_text(str(error))
            raise Unreachable(
                f"{named(url)} does not answer {method} as a node does: {why}"
            ) from None
        raise _refused(url, answer.error)


def _refused(url: str, error: _Error) -> Exception:
    message = plain_text(error.message)
    if error.code == BEHIND:
        return NodesBehind(f"{named(url)}: it is behind the cluster")
    if error.code in REFUSALS:
        return TransactionRefused(
            message, error.data.get("err") if isinstance(error.data, dict) else None
        )
    return Unreachable(f"{named(url)}: {message or error.code}")


def _why(error: OSError) -> str:
    """Why a node cannot be asked, as far as a user can do something about it."""
    if isinstance(error, socket.gaierror):
        return "no such host is known here"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not one that this machine trusts ({error.verify_message}):"
            " is it the right node? SSL_CERT_FILE names a CA of yours"
        )
    if isinstance(error, ssl.SSLError):
        return f"it does not speak TLS as https does: {error.reason}"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "nobody listens there; is the node running, and the port right?"
    return plain_text(str(error)) or type(error).__name__
