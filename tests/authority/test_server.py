"""A real server on loopback: what it takes, what it refuses, and what survives it."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from authority.any_run import OWNER, STRANGER, A, B, join, run, until
from authority.served_run import OPEN, connected, serving
from folkmoot.authority import Denied
from folkmoot.authority.server import admission, service, wire
from folkmoot.authority.server.attending import Attending
from folkmoot.authority.server.changes import LAG
from folkmoot.authority.server.client import ServerAuthority
from folkmoot.authority.server.serve import Listening, listen
from folkmoot.authority.server.service import SMALL, Access
from folkmoot.core.coordinator import Phase, encode
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.view import view
from folkmoot.host.signing import Identity
from folkmoot.host.tasks import end_tasks


async def test_a_watcher_sees_the_same_state_as_the_keeper(tmp_path: Path) -> None:
    identities = [Identity(bytes([i]) * 32) for i in range(1, 6)]
    async with serving(tmp_path, min_clients=5) as server, connected(server, OWNER) as owner:
        watch = owner.watch()
        await anext(watch)
        for identity in identities:
            async with connected(server, identity) as authority:
                await authority.submit(join(identity))
        for identity in identities:
            async with connected(server, identity) as authority:
                await authority.submit(m.Ready(identity.public, 0))
        async with asyncio.timeout(120):
            async for state in watch:
                if state.phase is Phase.RoundTrain:
                    break
        assert encode(state) == encode(view(server.keeper.state))


async def test_a_server_sends_nothing_to_one_that_looks_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all changes of a run would be sent to it, and kept there unread."""
    ended = asyncio.Event()
    monkeypatch.setattr(Attending, "end", lambda *_: ended.set())
    async with serving(tmp_path) as server, connected(server, OWNER) as owner:
        await anext(owner.watch())
        async with asyncio.timeout(60):
            await ended.wait()
        assert server.service.changes.watchers == 0


async def test_a_watcher_that_fell_far_behind_is_sent_the_state_and_no_backlog(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as server, asyncio.timeout(60):
        changes = server.service.changes
        first, _ = await changes.newer(-1)
        version = first
        for turn in range(LAG + 1):
            await server.keeper.submit(m.Resume() if turn % 2 else m.Pause())
            version, _ = await changes.newer(version)
        _, kept = await changes.newer(version - LAG)
        assert len(kept) == LAG
        _, (whole,) = await changes.newer(first)
        assert wire.Change.FromString(whole).snapshot == encode(view(server.keeper.state))


async def test_clients_are_told_of_members_whose_connection_ended(tmp_path: Path) -> None:
    a, b, stranger = (Identity(bytes([i]) * 32) for i in range(1, 4))
    told: asyncio.Queue[tuple[bytes, ...]] = asyncio.Queue()
    async with serving(tmp_path) as server, connected(server, a, member=True) as at_a:
        at_a.on_hung_up = told.put_nowait
        watching = asyncio.create_task(until(at_a, Phase.Finished))
        for who in (stranger, b):
            # The first one is no member of an epoch: nobody waits for it.
            async with connected(server, who, member=True) as authority:
                if who is b:
                    await at_a.submit(join(a))
                    await authority.submit(join(b))
                await anext(authority.watch())
                async with connected(server, who) as looks_on:
                    await anext(looks_on.watch())
        async with asyncio.timeout(60):
            assert await told.get() == (b.public,)
        await end_tasks([watching])


async def test_what_was_acknowledged_survives_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        async with connected(server, A) as at_a, connected(server, B) as at_b:
            await at_a.submit(join(A))
            await at_b.submit(join(B))
            await at_a.submit(m.Ready(A.public, 0))
        before = encode(server.keeper.state)
    async with serving(tmp_path) as server:
        assert server.keeper.resumed
        assert encode(server.keeper.state) == before
        async with connected(server, B) as at_b:
            assert await at_b.submit(m.Ready(B.public, 0)) is None
            await until(at_b, Phase.RoundTrain)


async def test_a_client_goes_on_after_the_server_restarted(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        port = server.port
        authority = ServerAuthority(f"127.0.0.1:{port}", "moot", A)
        watch = authority.watch()
        await anext(watch)
    config = run()
    journal = tmp_path / "run.journal"
    async with listen(config, journal, f"127.0.0.1:{port}", OPEN):
        async with asyncio.timeout(120):
            assert (await anext(watch)).phase is Phase.WaitingForMembers
        assert await authority.submit(join(A)) is None
    await authority.close()


async def test_what_a_witness_tells_for_people_is_bounded(tmp_path: Path) -> None:
    long = m.WitnessMetadata(evaluations=(("x" * 65, 0.0),))
    many = m.WitnessMetadata(evaluations=(("x", 0.0),) * 17)
    async with serving(tmp_path) as server, connected(server, A) as authority:
        for metadata in (long, many):
            proof = m.WitnessProof(0, 0, True)
            said = m.OpportunisticWitness(A.public, 0, 0, proof, *(b"",) * 4, metadata)
            with pytest.raises(Denied, match="of length <= "):
                await authority.submit(said)


async def test_a_wrong_run_id_is_refused_with_the_right_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, connected(server, A, "another") as authority:
        with pytest.raises(Denied, match="keeps run 'moot', not 'another'"):
            await authority.submit(join(A))


async def test_a_key_that_is_not_on_the_list_sees_and_says_nothing(tmp_path: Path) -> None:
    access = Access(allowed=frozenset({A.public}))
    async with serving(tmp_path, access) as server:
        async with connected(server, STRANGER) as authority:
            with pytest.raises(Denied, match="allow-list"):
                await authority.submit(join(STRANGER))
            with pytest.raises(Denied, match="allow-list"):
                await anext(authority.watch())
        async with connected(server, A) as authority:
            assert await authority.submit(join(A)) is None


def channel_to(server: Listening) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{server.port}")


class Raw(AbstractAsyncContextManager["Raw"]):
    """A client that sends whatever it likes."""

    who = Identity(b"a" * 32)

    def __init__(self, server: Listening, method: str = "Submit") -> None:
        self.session = server.service.session
        self.method = method
        self.channel = channel_to(server)
        self.call = self.channel.unary_unary(f"/{wire.SERVICE}/{method}")

    async def __aexit__(self, *raised: object) -> None:
        await self.channel.close()

    def request(self, payload: bytes, nonce: int = 1) -> Any:
        who = self.who
        signed = wire.Signed(
            public_key=who.public, session=self.session, nonce=nonce, payload=payload
        )
        signed.signature = who.sign(wire.signed_bytes(self.method, "moot", signed))
        return signed


@pytest.mark.parametrize(
    ("spoil", "status"),
    [
        (lambda s: s.ClearField("signature"), grpc.StatusCode.UNAUTHENTICATED),
        (lambda s: setattr(s, "payload", s.payload + b"x"), grpc.StatusCode.UNAUTHENTICATED),
        (lambda s: setattr(s, "nonce", 2), grpc.StatusCode.UNAUTHENTICATED),
        (lambda s: setattr(s, "session", b"old"), grpc.StatusCode.UNAUTHENTICATED),
        (lambda s: setattr(s, "public_key", b"short"), grpc.StatusCode.UNAUTHENTICATED),
    ],
)
async def test_an_altered_request_is_refused(tmp_path: Path, spoil: Any, status: Any) -> None:
    async with serving(tmp_path) as server, Raw(server) as raw:
        request = raw.request(msgspec.msgpack.encode(join(A)))
        spoil(request)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await raw.call(request.SerializeToString())
        assert error.value.code() is status
        assert len(server.keeper.state.pending) == 0
        # What is not signed uses up no nonce: else whoever knows a key could silence its client.
        for nonce in (1, 2):
            await raw.call(raw.request(msgspec.msgpack.encode(join(A)), nonce).SerializeToString())
        assert len(server.keeper.state.pending) == 1


@pytest.mark.parametrize("method", list(wire.METHODS))
async def test_nothing_is_read_before_it_is_admitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(admission, "WAITING", 0)
    async with serving(tmp_path) as server, Raw(server, method) as raw:
        with pytest.raises(grpc.aio.AioRpcError, match="too many requests") as error:
            await raw.call(raw.request(msgspec.msgpack.encode(join(raw.who))).SerializeToString())
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_message_that_does_not_come_gives_its_place_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PATIENCE", 0.1)
    async with serving(tmp_path) as server, channel_to(server) as channel, asyncio.timeout(60):
        silent = channel.stream_unary(f"/{wire.SERVICE}/Submit")()
        with pytest.raises(grpc.aio.AioRpcError, match="no message came within") as late:
            await silent
        # Not for good: the line may be slow, or the server.
        assert late.value.code() is grpc.StatusCode.UNAVAILABLE
        without = channel.stream_unary(f"/{wire.SERVICE}/Submit")()
        await without.done_writing()
        with pytest.raises(grpc.aio.AioRpcError, match="no message came with the request") as none:
            await without
        assert none.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_replay_garbage_and_an_oversized_frame_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, Raw(server) as raw:
        good = raw.request(msgspec.msgpack.encode(join(A))).SerializeToString()
        await raw.call(good)
        frames = {
            good: grpc.StatusCode.UNAUTHENTICATED,
            raw.request(b"\xc1garbage", 2).SerializeToString(): grpc.StatusCode.INVALID_ARGUMENT,
            raw.request(bytes(600_000), 3).SerializeToString(): grpc.StatusCode.RESOURCE_EXHAUSTED,
        }
        for frame, status in frames.items():
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await raw.call(frame)
            assert error.value.code() is status
        assert len(server.keeper.state.pending) == 1


async def test_a_long_message_of_a_stranger_is_not_looked_at(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, Raw(server) as raw:
        said = raw.request(b"\xc1" * (SMALL + 1)).SerializeToString()
        answer = wire.Receipt.FromString(await raw.call(said))
        assert answer.refused == m.Reason.NotAMember.name
        with pytest.raises(grpc.aio.AioRpcError, match="not a message of a client"):
            await raw.call(raw.request(b"\xc1" * SMALL, 2).SerializeToString())


async def test_what_only_members_may_say_counts_against_a_stranger_who_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signed well or not: the machine looked at it in vain, and others waited."""
    async with serving(tmp_path) as server, connected(server, A) as authority:
        door, judged = server.service._admission, list[tuple[str, bool]]()
        monkeypatch.setattr(door, "judge", lambda peer, refused: judged.append((peer, refused)))
        refused = await authority.submit(m.HealthCheck(A.public))
        assert refused is not None
        assert refused.code == m.Reason.NotAMember.name
        assert await authority.submit(join(A)) is None
        assert await authority.submit(m.HealthCheck(A.public)) is None
        assert [bad for _, bad in judged] == [False, True, False, False]
        assert len({peer for peer, _ in judged}) == 1


async def test_a_replay_is_not_worth_the_check_of_its_signature(tmp_path: Path) -> None:
    """What it is refused for tells what was looked at first."""
    async with serving(tmp_path) as server, Raw(server) as raw:
        good = raw.request(msgspec.msgpack.encode(join(A)))
        await raw.call(good.SerializeToString())
        good.signature = bytes(64)
        with pytest.raises(grpc.aio.AioRpcError, match="nonce 1 was used before"):
            await raw.call(good.SerializeToString())
        good.nonce = 2
        with pytest.raises(grpc.aio.AioRpcError, match="the signature does not fit"):
            await raw.call(good.SerializeToString())


async def test_the_server_keeps_data_for_clients_that_have_none(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.bin").write_bytes(bytes(range(256)) * 64)
    (tmp_path / "secret").write_bytes(b"not yours")
    journal = tmp_path / "run.journal"
    async with (
        listen(run(), journal, "127.0.0.1:0", OPEN, data=folder) as server,
        connected(server, A) as authority,
    ):
        assert await authority.read("train.bin", 250, 10) == (
            16384,
            bytes([250, 251, 252, 253, 254, 255, 0, 1, 2, 3]),
        )
        assert await authority.read("train.bin", 0, 0) == (16384, b"")
        assert await authority.read("train.bin", 20_000, 5) == (16384, b"")
        for name in ("../secret", "missing", str(tmp_path / "secret"), ""):
            with pytest.raises(Denied, match="no data file"):
                await authority.read(name, 0, 5)


async def test_a_burst_of_thousands_of_requests_is_answered_whole(tmp_path: Path) -> None:
    """Everybody comes back at once after a restart: gRPC's default cancels some of them."""
    async with serving(tmp_path) as server, channel_to(server) as channel:
        hello = channel.unary_unary(f"/{wire.SERVICE}/Hello")
        request = wire.HelloRequest(run_id="moot").SerializeToString()
        answers = await asyncio.gather(*(hello(request) for _ in range(4000)))
        assert len(answers) == 4000
