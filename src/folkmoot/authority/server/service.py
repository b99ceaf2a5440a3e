"""The gRPC face of a keeper: who may speak, and what is sent to whom.

- What comes is admitted before it is read (`Admission`), bounded in size, signed by the key
  it claims, fresh (a nonce is taken once a session), and decoded into a typed record whose sender
  is that key. Whatever is not is refused with a status and a sentence, and changes nothing; nothing
  of it stays in memory.
- Whoever watches is sent what `Changes` has for it.
- Large messages (a roster) go out a few at a time: gRPC copies each for its connection, and a
  thousand copies at once would be the server's largest use of memory.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import grpc
import msgspec

from folkmoot.authority.access import Access as Access
from folkmoot.authority.server import wire
from folkmoot.authority.server.admission import PATIENCE, Admission, Crowded
from folkmoot.authority.server.attending import TAKEN, Attending
from folkmoot.authority.server.changes import Changes
from folkmoot.authority.server.claims import Claims
from folkmoot.authority.server.keeper import Keeper
from folkmoot.authority.server.large_messages import LargeMessages
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.receive import member
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.host import signing

Code = grpc.StatusCode
Heard = TypeVar("Heard")
# Bytes that anybody may say; filters of thousands of clients are for members.
SMALL = 4096
_NOTHING = wire.Receipt()

_ranges = msgspec.msgpack.Decoder(wire.Range)
_lives = msgspec.msgpack.Decoder(Annotated[bytes, msgspec.Meta(max_length=16)])
_messages = msgspec.msgpack.Decoder(m.ClientMessage | m.OwnerMessage)


class Service:
    """Answers for one keeper."""

    def __init__(
        self,
        keeper: Keeper,
        access: Access,
        data: Path | None = None,
        claims: Claims | None = None,
    ) -> None:
        self.keeper = keeper
        self.claims = claims
        self.access = access
        self.data = data
        self.session = secrets.token_bytes(signing.SESSION_BYTES)
        self.changes = Changes(keeper)
        self._attending = Attending()
        self._nonces = signing.Nonces()
        self._large_messages = LargeMessages()
        self._admission = Admission()

    def register(self, server: grpc.aio.Server) -> None:
        """Every method takes its one message as a stream: not before it is admitted."""
        handlers = {
            "Hello": _unary(self.hello, wire.HelloRequest),
            "Submit": _unary(self.submit, wire.Signed),
            "Read": _unary(self.read, wire.Signed),
            "Watch": _stream(self.watch, wire.Signed),
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(wire.SERVICE, handlers),)
        )

    async def hello(self, context: Any) -> Any:
        async with self._let_in(context):
            asked = (await _message_of(context)).run_id
        run_id = self.keeper.state.run.run_id
        if asked != run_id:
            raise Abort(Code.NOT_FOUND, f"this server keeps run '{run_id}', not '{asked}'")
        return wire.HelloReply(run_id=run_id, session=self.session)

    async def submit(self, context: Any) -> Any:
        message = await self._hear("Submit", context, self._message)
        code = m.Reason.NotAMember.name if message is None else await self._submit(message)
        if code == m.Reason.NotAMember.name:
            self._admission.judge(context.peer(), refused=True)
        return wire.Receipt(refused=code)

    async def _submit(self, message: m.ClientMessage | m.OwnerMessage) -> str:
        """Why it was refused, or ""."""
        try:
            if self.claims is not None and isinstance(message, m.OpportunisticCooldown):
                refused = await self.claims.submit(self.keeper, message)
            else:
                refused = await self.keeper.submit(message)
        except OSError as error:
            reason = f"the server cannot record anything now: {error}"
            raise Abort(Code.UNAVAILABLE, reason) from None
        return refused.code if refused else ""

    def _message(self, key: bytes, payload: bytes) -> m.ClientMessage | m.OwnerMessage | None:
        """None for one that is too long to be kept waiting for the machine to refuse it."""
        if (
            len(payload) > SMALL
            and key not in self.access.owners
            and member(self.keeper.state, key) is None
        ):
            return None
        try:
            message: m.ClientMessage | m.OwnerMessage = _messages.decode(payload)
        except UNREADABLE as error:
            raise Abort(Code.INVALID_ARGUMENT, f"not a message of a client: {error}") from None
        if wrong := self.access.not_allowed(key, message):
            raise Abort(Code.PERMISSION_DENIED, wrong)
        self._attending.heard(key)
        return message

    async def read(self, context: Any) -> Any:
        """A range of a file in the data folder; names only, no paths."""
        wanted = await self._hear("Read", context, _range)
        files = await asyncio.to_thread(_files, self.data)
        if wanted.name not in files:
            raise Abort(Code.NOT_FOUND, f"no data file '{wanted.name}' here")
        size, data = await asyncio.to_thread(_read, files[wanted.name], wanted)
        return wire.Data(size=size, data=data)

    async def watch(self, context: Any) -> AsyncIterator[bytes]:
        key, life = await self._hear("Watch", context, _watching)
        silence = self.keeper.state.run.config.health_check_timeout
        if not self._attending.begin(key, life, context, silence):
            raise Abort(Code.ALREADY_EXISTS, TAKEN)
        self.changes.watchers += 1
        try:
            version = -1
            while True:
                version, messages = await self.changes.newer(version)
                for message in messages:
                    async with self._large_messages.passing(len(message)):
                        yield message
        finally:
            self.changes.watchers -= 1
            if self._attending.end(key, context):
                self.changes.hung_up(key)

    def _authenticate(self, method: str, request: Any) -> bytes:
        key = bytes(request.public_key)
        try:
            if request.session != self.session:
                raise signing.Unauthenticated("the session is over: say Hello again")
            # First what costs least: a replay is not worth the check of its signature.
            self._nonces.refuse_used(key, request.nonce)
            data = wire.signed_bytes(method, self.keeper.state.run.run_id, request)
            signing.verify(key, request.signature, data)
            self._nonces.take(key, request.nonce)
        except signing.Unauthenticated as error:
            raise Abort(Code.UNAUTHENTICATED, str(error)) from None
        if not self.access.member(key):
            raise Abort(Code.PERMISSION_DENIED, "this key is not on the run's allow-list")
        return key

    async def _hear(
        self, method: str, context: Any, decode: Callable[[bytes, bytes], Heard]
    ) -> Heard:
        """What `decode` makes of a signed request's key and payload; the request itself is gone."""
        async with self._let_in(context):
            try:
                request = await _message_of(context)
                heard = decode(self._authenticate(method, request), request.payload)
            except Abort:
                self._admission.judge(context.peer(), refused=True)
                raise
        self._admission.judge(context.peer(), refused=False)
        return heard

    @asynccontextmanager
    async def _let_in(self, context: Any) -> AsyncIterator[None]:
        try:
            async with self._admission.passing(context.peer()):
                yield
        except Crowded as error:
            raise Abort(Code.RESOURCE_EXHAUSTED, str(error)) from None


class Abort(Exception):
    """How a request ends that is not answered."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code = code

    def tell(self, context: Any) -> None:
        """Not by `abort`: its exception and its call hold each other, and the request with them,
        until the garbage collector comes by. A stranger's megabytes would stay till then."""
        context.set_code(self.code)
        context.set_details(str(self))


def _unary(answer: Callable[[Any], Awaitable[Any]], request: Any) -> Any:
    async def handler(_: Any, context: Any) -> Any:
        try:
            return await answer(context)
        except Abort as refusal:
            refusal.tell(context)
        return _NOTHING

    return grpc.stream_unary_rpc_method_handler(handler, request.FromString, wire.to_bytes)


def _stream(answers: Callable[[Any], AsyncIterator[bytes]], request: Any) -> Any:
    async def handler(_: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            async for message in answers(context):
                yield message
        except Abort as refusal:
            refusal.tell(context)

    return grpc.stream_stream_rpc_method_handler(handler, request.FromString)


async def _message_of(context: Any) -> Any:
    """The one message of a call."""
    try:
        async with asyncio.timeout(PATIENCE):
            message = await context.read()
    except TimeoutError:
        # Its line may be slow, or we: it can come again.
        raise Abort(Code.UNAVAILABLE, f"no message came within {PATIENCE:g} s") from None
    if message is grpc.aio.EOF:
        raise Abort(Code.INVALID_ARGUMENT, "no message came with the request")
    return message


def _watching(key: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """Who watches, and as which life of it; b"" for one who only looks on."""
    try:
        return key, _lives.decode(payload) if payload else b""
    except UNREADABLE as error:
        raise Abort(Code.INVALID_ARGUMENT, f"not a word of who watches: {error}") from None


def _range(key: bytes, payload: bytes) -> wire.Range:
    try:
        return _ranges.decode(payload)
    except UNREADABLE as error:
        raise Abort(Code.INVALID_ARGUMENT, f"not a range: {error}") from None


def _files(folder: Path | None) -> dict[str, Path]:
    return {p.name: p for p in folder.iterdir() if p.is_file()} if folder else {}


def _read(path: Path, wanted: wire.Range) -> tuple[int, bytes]:
    with path.open("rb") as file:
        file.seek(wanted.start)
        return path.stat().st_size, file.read(wanted.length)
