"""A participant's line to its coordinator: signed calls, sealed answers, and patience.

`call` makes one attempt; `insist` makes it until it is answered: it reconnects for ever, with a
back-off, and registers again when the coordinator has started again or forgotten us. An answer that
the known coordinator did not seal is not taken (`NotAgreed`), nor one that makes no sense
(`BadAnswer`).
"""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from folkmoot.federated import wire
from folkmoot.federated.names import plain_text
from folkmoot.federated.participant import answers
from folkmoot.federated.participant.known import Known
from folkmoot.federated.participant.policy import NotAgreed
from folkmoot.federated.signing import sign_request, verify_answer
from folkmoot.federated.wire import RequestRefused
from folkmoot.host.clock import backoff
from folkmoot.host.rpc import open_channel
from folkmoot.host.signing import Identity, Signer, Unauthenticated
from folkmoot.host.tls import ClientTls

Code = grpc.StatusCode
#: What a lost connection, or a coordinator that starts, is overloaded or in trouble looks like.
PASSING = {
    Code.UNAVAILABLE,
    Code.DEADLINE_EXCEEDED,
    Code.CANCELLED,
    Code.UNKNOWN,
    Code.INTERNAL,
}
CALL_TIMEOUT = 30.0
#: Taking and checking a large update out of a slow bucket takes its time.
END_TIMEOUT = 600.0


class Finished(Exception):
    """The federation is over and takes nobody any more."""


class Connection:
    def __init__(
        self,
        address: str,
        run_id: str,
        identity: Identity,
        tls: ClientTls | None = None,
        longest_pause: float = 10.0,
        known: Known | None = None,
    ) -> None:
        self.address, self.tls = address, tls
        self.run_id, self.longest_pause = run_id, longest_pause
        self.known = known or Known(None, run_id)
        self.signer = Signer(identity)
        # gRPC's own least time for an attempt to connect stays as it is (20 s): on a long or busy
        # line a shorter one cuts off every attempt before it is answered.
        options = [
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", round(longest_pause * 1000)),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.max_receive_message_length", 2 << 20),
        ]
        self._channel = open_channel(address, tls, options)
        self._calls = wire.calls(self._channel)
        self.session = b""
        self.participant_id = ""
        self.heartbeat = 10.0
        self.bucket = ""
        self.weights_port = 0
        #: What we say of ourselves when we register, in JSON.
        self.properties = ""
        self._registering = asyncio.Lock()
        #: Called when a session took the place of another.
        self.on_reconnect: Callable[[], None] = lambda: None
        #: Called with what a coordinator tells at first, before we register; may refuse it.
        self.agree: Callable[[answers.Welcome], object] = lambda welcome: None

    async def close(self) -> None:
        await self._channel.close()

    async def call(self, method: str, request: Any, limit: float = CALL_TIMEOUT) -> Any:
        """One attempt, signed for the present session. Raises `grpc.aio.AioRpcError`."""
        signed = self.signed(method, request)
        return self.checked(method, signed, await self._calls[method](signed, timeout=limit))

    def signed(self, method: str, request: Any) -> Any:
        """`request`, signed for the present session."""
        request.run_id = self.run_id
        return sign_request(self.signer, method, request, self.session)

    def checked(self, method: str, request: Any, answer: Any) -> Any:
        """An answer that the coordinator we know sealed, for this very request."""
        try:
            sealed_by = verify_answer(method, request, answer)
        except Unauthenticated as error:
            raise NotAgreed(f"{method} was answered by nobody we can know: {error}") from None
        self.known.check_coordinator(sealed_by)
        answer.ClearField("seal")
        return answer

    async def insist(self, method: str, request: Any, limit: float = CALL_TIMEOUT) -> Any:
        """Attempts until there is an answer. Raises `RequestRefused`, or `Finished`."""
        delays = backoff(most=self.longest_pause)
        while True:
            session = self.session
            try:
                return await self.call(method, request, limit)
            except grpc.aio.AioRpcError as error:
                if _forgotten(error):
                    await self.register(instead_of=session)
                elif error.code() not in PASSING:
                    raise refused(error) from None
                if _forgotten(error) and session != self.session:
                    continue
            await asyncio.sleep(next(delays))

    async def register(self, instead_of: bytes = b"") -> None:
        """Rendezvous until accepted. One at a time: a later caller finds the new session."""
        async with self._registering:
            if self.session and self.session != instead_of:
                return
            for delay in backoff(most=self.longest_pause):
                if await self._rendezvous():
                    if instead_of:
                        self.on_reconnect()
                    return
                await asyncio.sleep(delay)

    async def _rendezvous(self) -> bool:
        try:
            answer = await self.call("Rendezvous", self._introduction())
            if answer.session != self.session:
                # The first answer of a coordinator tells its session; the second call proves
                # that we live now and are not a recording.
                self.session = self._welcome(answer).session
                answer = await self.call("Rendezvous", self._introduction())
        except grpc.aio.AioRpcError as error:
            if error.code() == Code.UNAUTHENTICATED:
                self.signer.leap()
                return False
            if error.code() in PASSING:
                return False
            raise refused(error) from None
        told = self._welcome(answer)
        self.participant_id, self.bucket = told.participant_id, told.bucket
        self.heartbeat, self.weights_port = told.heartbeat, told.weights_port
        if told.finished and not told.accepted:
            raise Finished
        return told.accepted

    def _introduction(self) -> Any:
        return wire.RendezvousRequest(properties=self.properties)

    def _welcome(self, answer: Any) -> answers.Welcome:
        told = answers.welcome(answer, self.signer.identity.public, self.participant_id)
        self.agree(told)
        return told


def refused(error: grpc.aio.AioRpcError) -> RequestRefused:
    """A refusal as it may be shown: its reason is a stranger's text."""
    return RequestRefused(error.code(), plain_text(error.details() or ""))


def _forgotten(error: grpc.aio.AioRpcError) -> bool:
    """Whether registering again may help: a new session, or we were taken for lost."""
    return error.code() == Code.UNAUTHENTICATED or (
        error.code() == Code.PERMISSION_DENIED and "rendezvous" in (error.details() or "")
    )
