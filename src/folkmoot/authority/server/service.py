"""The gRPC face of a keeper: who may speak, and what is sent to whom.

- Everything received is bounded before it is read (gRPC's message limit), signed by the key it
  claims, fresh (a nonce is taken once a session), and decoded into a typed record whose sender is
  that key. Whatever is not is refused with a status and a sentence, and changes nothing.
- A watcher gets the state once and then what changed. A change becomes the bytes of a message once
  for all. A watcher that is too slow is sent the newest state again instead of a growing backlog.
- Large messages (a roster) go out a few at a time: gRPC copies each for its connection, and a
  thousand copies at once would be the server's largest use of memory.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import msgspec

from folkmoot.authority.server import wire
from folkmoot.authority.server.claims import Claims
from folkmoot.authority.server.gate import Gate
from folkmoot.authority.server.keeper import Keeper
from folkmoot.core.coordinator import encode
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.view import encode_change
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.host import signing

Code = grpc.StatusCode
# Changes a watcher may lag behind before it is sent the whole state.
LAG = 64
# Seconds between two changes, per watcher: about what sending one costs; and the longest.
PACE, LONGEST_PACE = 100e-6, 0.2
# Who waits is told at a fifth of that pace: thousands who join are not held up by the news of it.
UNHURRIED = 5

_ranges = msgspec.msgpack.Decoder(wire.Range)
_messages = msgspec.msgpack.Decoder(m.ClientMessage | m.OwnerMessage)


class Access(NamedTuple):
    """Who may do what. An empty allow-list lets everybody join."""

    allowed: frozenset[bytes] = frozenset()
    owners: frozenset[bytes] = frozenset()

    def member(self, key: bytes) -> bool:
        return not self.allowed or key in self.allowed or key in self.owners


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
        self.watchers = 0
        self._nonces = signing.Nonces()
        self._changes: list[bytes] = []  # the newest last, each one version on
        self._newest = (keeper.version, keeper.view)
        self._encoded = (-1, b"")
        self._moved = asyncio.Event()  # a new one for every version
        self._gate = Gate()

    def register(self, server: grpc.aio.Server) -> None:
        unary, signed = grpc.unary_unary_rpc_method_handler, wire.Signed.FromString
        handlers = {
            "Hello": unary(self.hello, wire.HelloRequest.FromString, _bytes),
            "Submit": unary(self.submit, signed, _bytes),
            "Read": unary(self.read, signed, _bytes),
            "Watch": grpc.unary_stream_rpc_method_handler(self.watch, signed),
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(wire.SERVICE, handlers),)
        )

    async def hello(self, request: Any, context: Any) -> Any:
        run_id = self.keeper.state.run.run_id
        if request.run_id != run_id:
            reason = f"this server keeps run '{run_id}', not '{request.run_id}'"
            await context.abort(Code.NOT_FOUND, reason)
        return wire.HelloReply(run_id=run_id, session=self.session)

    async def submit(self, request: Any, context: Any) -> Any:
        key = await self._authenticate("Submit", request, context)
        try:
            message = _messages.decode(request.payload)
        except UNREADABLE as error:
            await context.abort(Code.INVALID_ARGUMENT, f"not a message of a client: {error}")
        if isinstance(message, m.OwnerMessage):
            if key not in self.access.owners:
                await context.abort(Code.PERMISSION_DENIED, "only an owner of the run may say that")
        elif message.sender != key:
            await context.abort(
                Code.PERMISSION_DENIED, "the message names another sender than its key"
            )
        try:
            if self.claims is not None and isinstance(message, m.OpportunisticCooldown):
                refused = await self.claims.submit(self.keeper, message)
            else:
                refused = await self.keeper.submit(message)
        except OSError as error:
            await context.abort(Code.UNAVAILABLE, f"the server cannot record anything now: {error}")
        return wire.Receipt(refused=refused.code if refused else "")

    async def read(self, request: Any, context: Any) -> Any:
        """A range of a file in the data folder; names only, no paths."""
        await self._authenticate("Read", request, context)
        try:
            wanted = _ranges.decode(request.payload)
        except UNREADABLE as error:
            await context.abort(Code.INVALID_ARGUMENT, f"not a range: {error}")
        files = await asyncio.to_thread(_files, self.data)
        if wanted.name not in files:
            await context.abort(Code.NOT_FOUND, f"no data file '{wanted.name}' here")
        size, data = await asyncio.to_thread(_read, files[wanted.name], wanted)
        return wire.Data(size=size, data=data)

    async def watch(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        await self._authenticate("Watch", request, context)
        self.watchers += 1
        try:
            version = -1
            while True:
                if version == self._newest[0]:
                    await self._moved.wait()
                version, messages = self._since(version)
                for message in messages:
                    async with self._gate.passing(len(message)):
                        yield message
        finally:
            self.watchers -= 1

    def _since(self, version: int) -> tuple[int, list[bytes]]:
        """The newest version, and what brings a watcher at `version` to it."""
        newest = self._newest[0]
        behind = newest - version
        if version < 0 or behind > len(self._changes):
            return newest, [self._snapshot()]
        return newest, self._changes[-behind:]

    def _snapshot(self) -> bytes:
        """The newest state, encoded once however many ask for it."""
        version, state = self._newest
        if self._encoded[0] != version:
            whole = wire.Change(version=version, snapshot=encode(state))
            self._encoded = (version, _bytes(whole))
        return self._encoded[1]

    async def publish(self) -> None:
        """Turn the keeper's new views into changes, until cancelled.

        What comes while the last change is still going out to everybody becomes one change.
        """
        async for version, shown in self.keeper.watch(lambda: UNHURRIED * self._pace()):
            before, old = self._newest
            if version == before:
                continue
            change = wire.Change(version=before + 1, delta=encode_change(old, shown))
            self._changes = [*self._changes[1 - LAG :], _bytes(change)]
            self._newest = (before + 1, shown)
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()
            await asyncio.sleep(self._pace())

    def _pace(self) -> float:
        return min(self.watchers * PACE, LONGEST_PACE)

    async def _authenticate(self, method: str, request: Any, context: Any) -> bytes:
        key = bytes(request.public_key)
        try:
            if request.session != self.session:
                raise signing.Unauthenticated("the session is over: say Hello again")
            data = wire.signed_bytes(method, self.keeper.state.run.run_id, request)
            signing.verify(key, request.signature, data)
            self._nonces.take(key, request.nonce)
        except signing.Unauthenticated as error:
            await context.abort(Code.UNAUTHENTICATED, str(error))
        if not self.access.member(key):
            await context.abort(Code.PERMISSION_DENIED, "this key is not on the run's allow-list")
        return key


def _files(folder: Path | None) -> dict[str, Path]:
    return {p.name: p for p in folder.iterdir() if p.is_file()} if folder else {}


def _read(path: Path, wanted: wire.Range) -> tuple[int, bytes]:
    with path.open("rb") as file:
        file.seek(wanted.start)
        return path.stat().st_size, file.read(wanted.length)


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())
