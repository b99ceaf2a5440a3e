"""A server that wants to harm its clients: they go on, or end with a sentence."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from msgspec.structs import replace

from authority.any_run import run
from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.server import wire
from folkmoot.authority.server.client import ServerAuthority
from folkmoot.core.bloom import bloom_bits
from folkmoot.core.coordinator import create, encode
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.committee import WitnessProof
from folkmoot.core.coordinator.config import CLIENTS_MAX
from folkmoot.core.coordinator.receive import ADDRESS_MAX
from folkmoot.core.coordinator.state import STORED_ROUNDS, Client, Epoch, Judged, Round, Witness
from folkmoot.core.coordinator.view import encode_change, view
from folkmoot.core.data_config import TextFiles
from folkmoot.core.quorum import MAX_WITNESSES
from folkmoot.host.signing import Identity
from support.hostile import listening

IDENTITY = Identity(b"c" * 32)


class HostileServer:
    """Answers what a test says, over real gRPC."""

    def __init__(self) -> None:
        self.state = view(create(run(), 0))
        self.receipt = wire.Receipt()
        self.data = wire.Data(size=4, data=b"data")
        self.changes: list[Any] = [wire.Change(snapshot=encode(self.state))]
        self.details = ""

    async def Hello(self, request: Any, context: Any) -> Any:
        return wire.HelloReply(run_id=request.run_id, session=b"s" * 16)

    async def Submit(self, request: Any, context: Any) -> Any:
        if self.details:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, self.details)
        return self.receipt

    async def Read(self, request: Any, context: Any) -> Any:
        return self.data

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        for change in self.changes:
            yield change
        # After the harm it does what it should, so a client that went on is seen to.
        yield wire.Change(snapshot=encode(self.state))

    def handler(self) -> grpc.GenericRpcHandler:
        def one(name: str) -> Any:
            streams = name == "Watch"
            make = (
                grpc.unary_stream_rpc_method_handler
                if streams
                else grpc.unary_unary_rpc_method_handler
            )
            request, reply = wire.METHODS[name]
            return make(
                getattr(self, name),
                request_deserializer=request.FromString,
                response_serializer=reply.SerializeToString,
            )

        return grpc.method_handlers_generic_handler(wire.SERVICE, {n: one(n) for n in wire.METHODS})


@asynccontextmanager
async def served(change: Callable[[HostileServer], None]) -> AsyncIterator[ServerAuthority]:
    hostile = HostileServer()
    change(hostile)
    async with listening(hostile.handler()) as address:
        authority = ServerAuthority(address, hostile.state.run.run_id, IDENTITY)
        try:
            yield authority
        finally:
            await authority.close()


async def test_a_refusal_for_a_reason_that_nobody_knows_is_a_sentence() -> None:
    def change(server: HostileServer) -> None:
        server.receipt = wire.Receipt(refused="\x1b[2Jboo")

    async with served(change) as authority:
        with pytest.raises(Denied, match="which we do not know") as told:
            await authority.submit(m.Ready(IDENTITY.public, 0))
        assert "\x1b" not in str(told.value)


async def test_what_a_server_says_cannot_write_on_the_terminal() -> None:
    def change(server: HostileServer) -> None:
        # Of more than 8 kB gRPC itself refuses some, by chance.
        server.details = "\x1b[2J" + "x" * 5000

    async with served(change) as authority:
        with pytest.raises(Denied) as told:
            await authority.submit(m.Ready(IDENTITY.public, 0))
        assert "\x1b" not in str(told.value)
        assert len(str(told.value)) < 1000


async def test_more_data_than_was_asked_for_is_not_taken() -> None:
    async with served(lambda server: None) as authority:
        assert await authority.read("a", 0, 4) == (4, b"data")
        with pytest.raises(Denied, match="more of a than was asked for"):
            await authority.read("a", 0, 3)


@pytest.mark.parametrize("where", ["snapshot", "delta"])
async def test_a_run_that_its_owner_could_not_have_written_is_not_trained(where: str) -> None:
    def change(server: HostileServer) -> None:
        state = server.state
        config = replace(state.run.config, health_check_timeout=-1.0)
        bad = replace(state, run=replace(state.run, config=config))
        if where == "snapshot":
            server.changes = [wire.Change(snapshot=encode(bad))]
        else:
            server.changes.append(wire.Change(delta=encode_change(state, bad)))

    async with served(change) as authority:
        with pytest.raises(Denied, match="a run that cannot be"):
            async for _ in authority.watch():
                pass


async def test_a_state_that_no_run_comes_to_is_not_computed_with() -> None:
    def change(server: HostileServer) -> None:
        judged = replace(server.state.epoch, judged=Judged(0, (7,)))
        server.changes.append(wire.Change(snapshot=encode(replace(server.state, epoch=judged))))

    async with served(change) as authority:
        with pytest.raises(Denied, match="a state that cannot be: a client is judged"):
            async for _ in authority.watch():
                pass


async def test_a_run_whose_names_would_write_on_the_terminal_is_not_trained() -> None:
    def change(server: HostileServer) -> None:
        model = replace(server.state.run.model, data=TextFiles(("\x1b[2Jcorpus.txt",)))
        bad = replace(server.state, run=replace(server.state.run, model=model))
        server.changes = [wire.Change(snapshot=encode(bad))]

    async with served(change) as authority:
        with pytest.raises(Denied, match=r"data\.paths must have no control characters") as told:
            await anext(authority.watch())
        assert "\x1b" not in str(told.value)


def test_the_largest_state_of_a_run_can_be_shown() -> None:
    state, everybody = create(run(), 0), range(CLIENTS_MAX)
    seen = bytes(bloom_bits(CLIENTS_MAX) // 8)
    witness = Witness(WitnessProof(1, 2, True), seen, seen, bytes(32), bytes(32), (65_000,) * 1024)
    told = Round(
        *(2**32, 2**32 - 1, 2**64 - 1),
        absent=tuple(everybody),
        weights=bytes(2 * CLIENTS_MAX),
        witnesses=(witness,) * MAX_WITNESSES,
    )
    clients = tuple(Client(n.to_bytes(32), bytes(ADDRESS_MAX), bytes(32)) for n in everybody)
    epoch = Epoch(clients=clients, absent=tuple(everybody), rounds=(told,) * STORED_ROUNDS)
    assert len(encode(replace(state, epoch=epoch))) < wire.MAX_CHANGE * 3 // 4


async def test_another_run_is_not_trained() -> None:
    def change(server: HostileServer) -> None:
        other = replace(server.state, run=replace(server.state.run, run_id="another"))
        server.changes = [wire.Change(snapshot=encode(other))]

    async with served(change) as authority:
        with pytest.raises(Denied, match="another run"):
            await anext(authority.watch())


@pytest.mark.parametrize("seed", range(40))
async def test_damaged_states_are_asked_for_again_or_refused(seed: int) -> None:
    """A byte changed, a piece cut out, or plain noise, as a whole state or as a change."""
    draw = random.Random(seed)

    def change(server: HostileServer) -> None:
        moved = replace(server.state, epoch=replace(server.state.epoch, started=7))
        body = bytearray(
            draw.choice([encode(server.state), encode_change(server.state, moved), b""])
            or draw.randbytes(draw.randrange(1, 400))
        )
        for _ in range(draw.randrange(1, 4)):
            body[draw.randrange(len(body))] = draw.randrange(256)
        damaged = bytes(body[draw.randrange(3) : draw.choice([None, -1, -7])])
        field = draw.choice(["snapshot", "delta"])
        server.changes = [*server.changes, wire.Change(**{field: damaged})]

    async with served(change) as authority:
        seen = 0
        try:
            async for _ in authority.watch():
                seen += 1
                if seen == 3:
                    return
        except (Denied, Unreachable):
            assert seen
