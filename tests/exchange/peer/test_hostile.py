"""What a member cannot do to another: stop it, fill it, or make it believe something."""

import asyncio
import os
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from iroh import IrohError, SecretKey

from exchange.peer.rogue import Rogue, a_rogue_among, read
from folkmoot.exchange.peer import Disconnected, Misbehaved, RpcMethod, TurnedAway, wire
from folkmoot.exchange.peer.message import SIGNATURE_BYTES, Content, seal
from support.peers import TOPIC, members, told

Attack = Callable[[Rogue], Awaitable[object]]


async def garbage(rogue: Rogue) -> None:
    await rogue.send.write_all((50).to_bytes(4, "little") + os.urandom(50))


async def an_oversized_length(rogue: Rogue) -> None:
    await rogue.send.write_all(b"\xff\xff\xff\xff")


async def an_empty_frame(rogue: Rogue) -> None:
    await rogue.send.write_all(bytes(4))


async def an_unknown_kind(rogue: Rogue) -> None:
    body = msgspec.msgpack.encode([99, b""])
    await rogue.send.write_all(len(body).to_bytes(4, "little") + body)


async def a_forged_message(rogue: Rogue) -> None:
    content = Content(bytes(range(32)), 1, b"", b"")
    await rogue.say(wire.Gossip(msgspec.msgpack.encode(content) + bytes(SIGNATURE_BYTES)))


async def a_message_of_another_run(rogue: Rogue) -> None:
    secret = SecretKey.from_bytes(rogue.secret)
    await rogue.say(wire.Gossip(seal(Content(rogue.id, 1, b"", b""), bytes(32), secret).sealed))


async def a_garbled_request(rogue: Rogue) -> None:
    await rogue.ask((4).to_bytes(4, "little") + b"\x93\x05\xc4\x01")


async def an_oversized_request(rogue: Rogue) -> None:
    await rogue.ask(b"\xff\xff\xff\xff")


MALFORMED: list[Attack] = [
    garbage,
    an_oversized_length,
    an_empty_frame,
    an_unknown_kind,
    a_forged_message,
    a_message_of_another_run,
    a_garbled_request,
    an_oversized_request,
]


@pytest.mark.parametrize("attack", MALFORMED, ids=lambda attack: attack.__name__)
async def test_who_breaks_the_protocol_is_hung_up_on_and_shunned(attack: Attack) -> None:
    async with members(2) as peers, a_rogue_among(peers) as rogue:
        await attack(rogue)
        assert "(code 4)" in await rogue.hung_up()
        await told(peers[0]).until(Misbehaved, lambda event: event.peer == rogue.id)
        await rogue.dial(peers[0])
        await rogue.hung_up()
        turned = await told(peers[0]).until(TurnedAway, lambda event: event.peer == rogue.id)
        assert turned.reason == "it broke the rules a moment ago"
        peers[0].publish(1, b"we go on")
        assert (await peers[1].receive()).head == b"we go on"


async def test_a_flood_of_frames_is_cut_off() -> None:
    async with members(2, frames_per_second=50.0) as peers, a_rogue_among(peers) as rogue:
        await rogue.send.write_all(1000 * wire.encode(wire.Want(())))
        assert "(code 5)" in await rogue.hung_up()


async def test_more_messages_than_the_quota_are_cut_off() -> None:
    async with members(2) as peers, a_rogue_among(peers) as rogue:
        secret = SecretKey.from_bytes(rogue.secret)
        for number in range(65):
            content = Content(rogue.id, 1, number.to_bytes(2, "big"), b"")
            await rogue.say(wire.Gossip(seal(content, TOPIC, secret).sealed))
        assert "too many messages alive (code 5)" in await rogue.hung_up()
        assert len(peers[0]._inbox) == 64


async def test_who_stops_in_the_middle_of_a_frame_is_cut_off() -> None:
    async with members(2) as peers, a_rogue_among(peers) as rogue:
        await rogue.send.write_all((50).to_bytes(4, "little") + b"x")
        assert "(code 6)" in await rogue.hung_up()


async def test_who_does_not_greet_gets_no_place() -> None:
    quick = members(1, greet_time=0.3)
    async with quick as peers, a_rogue_among(peers, greets=False) as rogue:
        assert "(code 6)" in await rogue.hung_up()
        await told(peers[0]).until(TurnedAway, lambda event: event.peer == rogue.id)


async def test_who_reads_nothing_is_cut_off_and_costs_a_bounded_queue() -> None:
    async with members(2, queue_bytes=1 << 20) as peers, a_rogue_among(peers) as rogue:
        body = os.urandom(60_000)
        for number in range(60):  # more than its windows take
            peers[0].publish(number, b"", body)
            await peers[1].receive()
        gone = await told(peers[0]).until(Disconnected, lambda e: e.peer == rogue.id)
        assert "unread" in gone.reason or "pass in the middle" in gone.reason


async def test_requests_that_never_come_are_dropped_one_by_one() -> None:
    async with members(1, stall=0.3) as peers, a_rogue_among(peers) as rogue:
        streams = [await rogue.ask(b"\x10") for _ in range(4)]
        for stream in streams:
            with pytest.raises(IrohError):
                await stream.recv().read_exact(1)
        stream = await rogue.ask(wire.encode(wire.Call("echo", b"")))
        assert wire.decode_call_reply(await read(stream.recv())) == wire.RefusedReply(
            "no such method"
        )


async def test_no_more_requests_are_open_than_allowed() -> None:
    async with members(1, requests=2) as peers, a_rogue_among(peers) as rogue:
        entered, leave = asyncio.Semaphore(0), asyncio.Event()
        inside = most = 0

        async def wait(who: bytes, question: int) -> int:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            entered.release()
            await leave.wait()
            inside -= 1
            return question

        peers[0].answer(RpcMethod("wait", int, int), wait)
        ask = wire.encode(wire.Call("wait", msgspec.msgpack.encode(1)))
        streams = [await rogue.ask(ask) for _ in range(5)]
        for _ in range(2):
            await entered.acquire()
        leave.set()
        for stream in streams:
            assert wire.decode_call_reply(await read(stream.recv())) == wire.Answer(b"\x01")
        assert most == 2


async def test_an_answer_that_cannot_be_read_is_no_answer() -> None:
    """The asker is told so, and nothing else happens."""
    async with members(2) as (asker, other):
        lies = RpcMethod("lie", int, int)

        async def lie(who: bytes, question: int) -> str:
            return "not a number"

        other.answer(lies, lie)  # type: ignore[arg-type]
        with pytest.raises(Exception, match="the answer cannot be read"):
            await asker.ask(other.id, lies, 1)
