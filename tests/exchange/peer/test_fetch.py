"""Content from providers that are slow, lie, lack it, or die on the way."""

import asyncio
import os

import pytest
from blake3 import blake3

from exchange.peer.provider import known_bytes, provider_process
from exchange.peer.rogue import Rogue, a_rogue_among, read
from folkmoot.core.content import PIECE, content_name, piece_hashes
from folkmoot.exchange.peer import FetchFailed, Misbehaved, Peer, PeerConfig, wire
from folkmoot.exchange.peer.pieces import Pieces
from support.peers import members, strangers, told


async def test_content_comes_from_several_providers_at_once() -> None:
    async with members(4) as (here, *providers):
        content = os.urandom(120 * PIECE + 17)  # enough for whoever is slow to begin
        names = {provider.put(content) for provider in providers}
        (name,) = names
        before = here.traffic()
        ids = [provider.id for provider in providers]
        assert await here.get(name, ids, len(content)) == content
        after = here.traffic()
        shares = [after[id_].received - before[id_].received for id_ in ids]
        assert all(share > PIECE for share in shares)
        assert sum(shares) < 1.1 * len(content)


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1])
async def test_content_of_any_size_arrives(size: int) -> None:
    async with members(2) as (here, provider):
        content = os.urandom(size)
        assert await here.get(provider.put(content), [provider.id], size) == content


async def test_what_was_fetched_is_served_to_others() -> None:
    async with members(3) as (first, second, third):
        content = os.urandom(2 * PIECE)
        name = first.put(content)
        await second.get(name, [first.id], len(content))
        first.drop(name)
        assert await third.get(name, [second.id], len(content)) == content


async def test_a_provider_that_gets_the_content_a_little_later_is_asked_again() -> None:
    async with members(2) as (here, provider):
        content = os.urandom(PIECE)
        name = content_name(content, blake3)
        getting = asyncio.create_task(here.get(name, [provider.id], PIECE))
        assert not await _settled(getting, 0.2)
        provider.put(content)
        assert await getting == content


async def _settled(task: "asyncio.Task[bytes]", seconds: float) -> bool:
    done, _ = await asyncio.wait([task], timeout=seconds)
    return bool(done)


async def test_nobody_has_it_is_told_with_what_each_said() -> None:
    async with members(2) as (here, provider):
        with pytest.raises(FetchFailed, match=r"within 0\.5 s .*it is not here"):
            await here.get(bytes(32), [provider.id], PIECE, seconds=0.5)
        with pytest.raises(FetchFailed, match="nobody"):
            await here.get(bytes(32), [], PIECE)


def _falsify(provider: Peer, name: bytes, at: int) -> None:
    """From now on the provider sends another byte there, under the true outline."""
    held = provider.store.find(name)
    assert held is not None
    data = bytearray(held.data)
    data[at] ^= 1
    held.data = memoryview(bytes(data))


async def test_a_lying_provider_is_found_out_at_once_and_replaced() -> None:
    async with members(3) as (here, liar, honest):
        content = os.urandom(20 * PIECE)
        name = liar.put(content)
        honest.put(content)
        _falsify(liar, name, 0)
        # Alone it would be asked for everything: what it costs is seen then.
        with pytest.raises(FetchFailed, match="number 0"):
            await here.get(name, [liar.id], len(content))
        assert here.traffic()[liar.id].received < len(content) / 2
        lied = await told(here).until(Misbehaved)
        assert lied.peer == liar.id
        assert liar.id not in here.neighbours()
        assert await here.get(name, [liar.id, honest.id], len(content)) == content


async def test_pieces_before_the_lie_are_kept() -> None:
    async with members(3) as (here, liar, honest):
        content = os.urandom(20 * PIECE)
        name = liar.put(content)
        _falsify(liar, name, 15 * PIECE)
        getting = asyncio.create_task(here.get(name, [liar.id, honest.id], len(content), width=1))
        await told(here).until(Misbehaved)
        honest.put(content)
        assert await getting == content
        assert here.traffic()[honest.id].received < 8 * PIECE


async def _answer_with(rogue: Rogue, *data: bytes) -> None:
    """Answer the next request with these bytes and stop there."""
    stream = await rogue.connection.accept_bi()
    assert isinstance(wire.decode_request(await read(stream.recv())), wire.Get)
    for part in data:
        await stream.send().write_all(part)
    await rogue.connection.closed()


CONTENT = known_bytes(2 * PIECE)[: 2 * PIECE]
NAME = content_name(CONTENT, blake3)
HASHES = piece_hashes(memoryview(CONTENT), blake3)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (wire.encode(wire.Found(2 * PIECE, bytes(64))), "does not prove"),
        (wire.encode(wire.Found(2 * PIECE - 1, HASHES)), "does not prove"),
        (wire.encode(wire.Found(1 << 39, HASHES)), "at most"),
        (wire.encode(wire.Answer(b"")), "cannot be read"),
        (b"\xff\xff\xff\xff", "at most"),
        (b"\x03\x00\x00\x00abc", "cannot be read"),
    ],
    ids=["hashes", "size", "too large", "another kind", "too long", "garbage"],
)
async def test_a_false_outline_is_refused_before_any_content(answer: bytes, why: str) -> None:
    async with members(1) as peers, a_rogue_among(peers) as rogue:
        serving = asyncio.create_task(_answer_with(rogue, answer))
        with pytest.raises(FetchFailed, match=why):
            await peers[0].get(NAME, [rogue.id], 2 * PIECE)
        await serving
        await told(peers[0]).until(Misbehaved, lambda event: event.peer == rogue.id)


@pytest.mark.parametrize("parts", [(), (HASHES,), (HASHES, CONTENT[: PIECE + 1])], ids=len)
async def test_a_provider_that_stalls_is_replaced(parts: tuple[bytes, ...]) -> None:
    """Before its answer, after the outline, in the middle of a piece."""
    config = {"stall": 0.4}
    async with members(2, **config) as peers, a_rogue_among(peers) as rogue:
        here, honest = peers
        answer = [wire.encode(wire.Found(2 * PIECE, parts[0])), *parts[1:]] if parts else []
        serving = asyncio.create_task(_answer_with(rogue, *answer))
        asked = [rogue.id, honest.id]
        getting = asyncio.create_task(here.get(NAME, asked, 2 * PIECE, width=1))
        honest.put(CONTENT)
        assert await getting == CONTENT
        serving.cancel()


async def test_who_told_of_content_and_does_not_give_it_out_is_known_before_time_is_up() -> None:
    """It says that it is not there, at once; or says nothing, twice."""
    async with members(2, inline_limit=0, stall=0.4) as (here, author):
        told_of = asyncio.Event()
        author.publish(1, b"", CONTENT)
        message = await here.receive()
        author.drop(NAME)
        getting = asyncio.create_task(here.body(message, 2 * PIECE, withheld=told_of.set))
        await told_of.wait()
        author.put(CONTENT)
        assert await getting == CONTENT


async def test_who_stalls_once_may_do_better_and_twice_withholds() -> None:
    async with members(2, stall=0.4) as peers, a_rogue_among(peers) as rogue:
        here, honest = peers
        said: list[bytes] = []
        serving = asyncio.create_task(_answer_with(rogue))
        done = asyncio.Event()

        def withheld(peer: bytes) -> None:
            said.append(peer)
            if peer == rogue.id:
                done.set()

        asked = [rogue.id, honest.id]
        getting = asyncio.create_task(here.get(NAME, asked, 2 * PIECE, width=1, withheld=withheld))
        await done.wait()
        assert sorted(said) == sorted(asked)
        honest.put(CONTENT)
        assert await getting == CONTENT
        serving.cancel()


async def test_when_a_provider_is_killed_another_goes_on_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = 80 * PIECE
    content = known_bytes(size)
    name = content_name(content, blake3)
    brought, half = 0, asyncio.Event()
    put = Pieces.put

    def counted(self: Pieces, index: int, piece: bytes) -> None:
        nonlocal brought
        put(self, index, piece)
        brought += 1
        if brought == 40:
            half.set()

    monkeypatch.setattr(Pieces, "put", counted)
    async with (
        strangers(1, PeerConfig(stall=1.0)) as (here,),
        strangers(1) as (backup,),
        provider_process(here, size) as (process, killed, address),
    ):
        both = {killed: address, backup.id: backup.address}
        await here.members(both)
        await backup.members({here.id: here.address})
        assert await here.connected(both, 20)
        getting = asyncio.create_task(here.get(name, [killed, backup.id], len(content), width=1))
        await half.wait()
        process.kill()
        backup.put(content)
        assert await getting == content
        assert brought == -(-len(content) // PIECE)
        assert here.traffic()[backup.id].received < 0.75 * size
