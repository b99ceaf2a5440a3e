"""The authority of a run that a server keeps, as its clients use it.

Reconnects by itself: a broken stream is opened again with back-off, a server that restarted has a
new session and is greeted again. `submit` tries once and says `Unreachable`; when to try again is
for the one who knows what the message is worth by then. A server with which we never spoke and that
does not take our kind of connection (TLS) is not tried for ever: what to do about it is said.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import grpc
import msgspec

from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.server import wire
from folkmoot.core.config import all_broken
from folkmoot.core.coordinator import Coordinator, Run, decode
from folkmoot.core.coordinator.impossible import impossible
from folkmoot.core.coordinator.messages import AnyEvent, Reason, Refused, refusal
from folkmoot.core.coordinator.view import apply_change
from folkmoot.core.delta import DeltaError
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.host.clock import backoff
from folkmoot.host.plain_text import plain_text
from folkmoot.host.rpc import open_channel
from folkmoot.host.signing import Identity, Signer
from folkmoot.host.tls import ClientTls

# Waits between attempts: a server that was started again finds its clients back within a second.
FIRST_WAIT, LONGEST_WAIT = 0.1, 1.0
# A server may also hang up because it is just ending: believe it after so many times.
HANG_UPS = 3
# How long another's hold on our key is taken for one that the server has yet to see ended.
TAKEN_PATIENCE = 5.0
SUBMIT_TIMEOUT, READ_TIMEOUT = 10.0, 60.0


def _whole(snapshot: bytes) -> Coordinator:
    try:
        return decode(snapshot)
    except UNREADABLE as error:
        raise DeltaError(f"the server sent what is no state: {error}") from error


def _mismatch(details: str, tls: ClientTls | None) -> str | None:
    """What to do when the two ends do not speak the same TLS, as far as the error tells."""
    if "WRONG_VERSION_NUMBER" in details:
        return "the server does not use TLS: leave --tls-ca out"
    if "CERTIFICATE_VERIFY_FAILED" in details and tls is not None:
        return (
            f"the server's certificate is not one that {tls.ca} vouches for: give --tls-ca the CA"
            " that signed it (and see that the clock of this machine is right)"
        )
    if "Hostname Verification" in details:
        return "the server's certificate is for another host: use the name that is in it"
    if "Socket closed" not in details and "reset by peer" not in details:
        return None
    if tls is None:
        return "the server hangs up: it uses TLS if --tls-ca is needed to join it; ask its owner"
    if tls.cert is None:
        return "the server hangs up: it wants a certificate of ours (--tls-cert and --tls-key)"
    return f"the server hangs up: it may not know the CA that signed {tls.cert}"


def _details(error: grpc.aio.AioRpcError) -> str:
    """What the server, whoever it is, says about it."""
    return plain_text(error.details() or "")


def _why_unreachable(error: grpc.aio.AioRpcError) -> str:
    """Why nobody answers, as far as a user can do something about it."""
    details = _details(error)
    if "DNS resolution failed" in details or "name resolution" in details.lower():
        return "no such host is known here"
    if "Connection refused" in details:
        return "nobody listens there; is the server running, and the port right?"
    if "unreachable" in details or "No route" in details:
        return "there is no way to that network from here"
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED or "FD Shutdown" in details:
        return "no answer; is there a firewall in between?"
    return details.rpartition("last error: ")[2] or error.code().name


_FINAL = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
)


class ServerAuthority:
    """One client's connection to the server at `address`."""

    def __init__(
        self,
        address: str,
        run_id: str,
        identity: Identity,
        tls: ClientTls | None = None,
        member: bool = False,
    ) -> None:
        """A `member` is the only one with its key; others may look on with the same."""
        options = [
            ("grpc.max_receive_message_length", wire.MAX_CHANGE),
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.initial_reconnect_backoff_ms", round(FIRST_WAIT * 1000)),
            ("grpc.max_reconnect_backoff_ms", round(LONGEST_WAIT * 1000)),
        ]
        self._channel = open_channel(address, tls, options)
        self.address = address
        self.run_id = run_id
        self._tls = tls
        self._met = False  # whether the server ever answered
        self._signer = Signer(identity)
        self._session = b""
        self._watching = msgspec.msgpack.encode(secrets.token_bytes(8)) if member else b""
        self.on_hung_up: Callable[[tuple[bytes, ...]], None] = lambda peers: None
        #: Why the server does not answer now, or "".
        self.last_error = ""
        self.sent = self.received = 0  # bytes of messages, for the account of a round
        unary, stream = self._channel.unary_unary, self._channel.unary_stream
        self._methods: dict[str, Any] = {
            name: (stream if name == "Watch" else unary)(
                f"/{wire.SERVICE}/{name}",
                request_serializer=request.SerializeToString,
                response_deserializer=reply.FromString,
            )
            for name, (request, reply) in wire.METHODS.items()
        }

    async def submit(self, message: AnyEvent) -> Refused | None:
        receipt = await self._call("Submit", message, SUBMIT_TIMEOUT)
        if not receipt.refused:
            return None
        if receipt.refused not in Reason.__members__:
            told = plain_text(receipt.refused)
            raise Denied(f"{self.address}: it refuses with {told!r}, which we do not know")
        return refusal(Reason[receipt.refused])

    async def read(self, name: str, start: int, length: int) -> tuple[int, bytes]:
        """(size of the whole, bytes) of a data file that the server keeps; at most `MAX_READ`."""
        wanted = wire.Range(name, start, min(length, wire.MAX_READ))
        answer = await self._call("Read", wanted, READ_TIMEOUT)
        self.received += answer.ByteSize()
        if len(answer.data) > wanted.length:
            raise Denied(f"{self.address}: it sends more of {name} than was asked for")
        return answer.size, answer.data

    async def _call(self, method: str, message: Any, seconds: float) -> Any:
        """The answer to a signed message; a session that is over is begun again, once."""
        payload = msgspec.msgpack.encode(message)
        for attempt in (1, 2):
            try:
                request = await self._signed(method, payload)
                return await self._methods[method](request, timeout=seconds)
            except grpc.aio.AioRpcError as error:
                self._raise_unless_stale(error, attempt)
        raise AssertionError("the second attempt returns or raises")

    async def watch(self) -> AsyncIterator[Coordinator]:
        delays, hung_up = backoff(FIRST_WAIT, LONGEST_WAIT), 0
        taken_since: float | None = None
        while True:
            try:
                async with aclosing(self._stream()) as states:
                    async for state in states:
                        delays = backoff(FIRST_WAIT, LONGEST_WAIT)
                        taken_since, self.last_error = None, ""
                        yield state
            except grpc.aio.AioRpcError as error:
                if error.code() in _FINAL:
                    raise Denied(f"{self.address}: {_details(error)}") from None
                advice = self._advice(error)
                hung_up += advice is not None
                if advice and hung_up == HANG_UPS:
                    raise Denied(f"{self.address}: {advice}") from None
                self.last_error = advice or _why_unreachable(error)
                if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                    self._begin_again(error)
                if error.code() is grpc.StatusCode.ALREADY_EXISTS:
                    taken_since = taken_since or time.monotonic()
                    if time.monotonic() - taken_since > TAKEN_PATIENCE:
                        raise Denied(f"{self.address}: {_details(error)}") from None
            except DeltaError:
                pass  # a change that does not fit: begin again with a whole state
            await asyncio.sleep(next(delays))

    async def _stream(self) -> AsyncGenerator[Coordinator, None]:
        state: Coordinator | None = None
        checked: Run | None = None
        call = self._methods["Watch"](await self._signed("Watch", self._watching))
        try:
            async for change in call:
                self.received += change.ByteSize()
                if change.hung_up:
                    self.on_hung_up(tuple(change.hung_up))
                    continue
                if change.snapshot:
                    state = _whole(change.snapshot)
                elif state is None:
                    raise DeltaError("the server sent a change before a state")
                else:
                    state = apply_change(state, change.delta)
                if state.run is not checked:
                    self._check(state.run)
                checked = state.run
                if wrong := impossible(state):
                    raise Denied(f"{self.address}: it tells a state that cannot be: {wrong}")
                yield state
        finally:
            # A stream that nobody reads would go on: every change of the run would be sent, and
            # kept here unread.
            call.cancel()

    def _check(self, run: Run) -> None:
        """A server is a stranger: what its owner could not have written is not trained."""
        if broken := next(all_broken(run), None):
            reason = plain_text(f"{broken.field} {broken.reason}")
            raise Denied(f"{self.address}: it tells a run that cannot be: {reason}")
        if run.run_id != self.run_id:
            raise Denied(f"{self.address}: it tells another run than {self.run_id!r}")

    async def _signed(self, method: str, payload: bytes) -> Any:
        if not self._session:
            hello = wire.HelloRequest(run_id=self.run_id)
            answer = await self._methods["Hello"](hello, timeout=SUBMIT_TIMEOUT)
            self._session = answer.session
            self._met = True
        request = wire.Signed(payload=payload)
        covered = partial(wire.signed_bytes, method, self.run_id, request)
        self._signer.sign(request, self._session, covered)
        self.sent += request.ByteSize()
        return request

    def _raise_unless_stale(self, error: grpc.aio.AioRpcError, attempt: int) -> None:
        if error.code() is grpc.StatusCode.UNAUTHENTICATED and attempt == 1:
            self._begin_again(error)
            return
        if error.code() in (*_FINAL, grpc.StatusCode.UNAUTHENTICATED):
            raise Denied(f"{self.address}: {_details(error)}") from None
        raise Unreachable(f"{self.address}: {self._advice(error) or _details(error)}") from None

    def _begin_again(self, error: grpc.aio.AioRpcError) -> None:
        """A new session; with higher nonces, if an earlier life's clock was ahead of ours."""
        self._session = b""
        if "nonce" in (error.details() or ""):
            self._signer.leap()

    def _advice(self, error: grpc.aio.AioRpcError) -> str | None:
        """What to do about a connection that can never work; None when another may."""
        return None if self._met else _mismatch(error.details() or "", self._tls)

    def traffic(self) -> tuple[int, int]:
        return self.sent, self.received

    async def close(self) -> None:
        await self._channel.close()
