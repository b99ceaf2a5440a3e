"""Peers on loopback: who may connect, what arrives, and what a neighbour cannot do."""

import asyncio
import os

import pytest

from folkmoot.exchange.peer import (
    CallRefused,
    DialFailed,
    Disconnected,
    FetchFailed,
    Misbehaved,
    NoAnswer,
    Peer,
    PeerConfig,
    RpcMethod,
    TurnedAway,
)
from folkmoot.exchange.peer.address import Address, encode_address
from support.peers import (
    assemble,
    heard,
    members,
    open_peer,
    roster,
    strangers,
    told,
)


async def test_a_small_body_rides_in_its_message_and_reaches_everybody_once() -> None:
    async with members(4) as peers:
        body = os.urandom(6000)
        sent = peers[0].publish(7, b"head", body)
        for peer in peers[1:]:
            message = await peer.receive()
            assert (message.origin, message.round, message.head) == (peers[0].id, 7, b"head")
            assert message == sent
            assert message.content.blob is None
            assert await peer.body(message, 6000) == body
        assert not any(peer._inbox for peer in peers)


async def test_a_large_body_is_announced_and_fetched() -> None:
    async with members(3) as peers:
        body = os.urandom(3_000_000)
        peers[0].publish(1, b"", body)
        for peer in peers[1:]:
            message = await peer.receive()
            assert message.content.body == b""
            assert await peer.body(message, 3_000_000) == body


async def test_a_body_over_the_callers_limit_is_not_fetched() -> None:
    async with members(2) as peers:
        peers[0].publish(1, b"", os.urandom(300_000))
        message = await peers[1].receive()
        with pytest.raises(FetchFailed, match="at most 100000 were expected"):
            await peers[1].body(message, 100_000, seconds=5)


async def test_who_is_not_a_member_is_turned_away_and_hears_nothing() -> None:
    async with members(2) as peers, strangers(1) as (stranger,):
        await stranger.members(roster([*peers, stranger]))
        for peer in peers:
            await told(peer).until(TurnedAway, lambda e: e.peer == stranger.id)
            assert stranger.id not in peer.neighbours()
        peers[0].publish(1, b"secret")
        await peers[1].receive()
        assert not stranger.neighbours()
        assert not stranger._inbox


async def test_who_is_no_member_any_more_is_hung_up_on() -> None:
    async with members(3) as peers:
        await peers[0].members(roster(peers[:2]))
        gone = await told(peers[2]).until(Disconnected, lambda e: e.peer == peers[0].id)
        assert "no member any more" in gone.reason
        assert peers[0].neighbours() == {peers[1].id}


async def test_a_member_of_another_run_is_refused() -> None:
    async with strangers(1) as (here,):
        other = await open_peer(topic=bytes(32))
        try:
            await here.members(roster([here, other]))
            await other.members(roster([here, other]))
            # Whichever reads the other's greeting first hangs up.
            waiting = [asyncio.create_task(told(p).until(Misbehaved)) for p in (here, other)]
            (first, *_), _ = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
            assert first.result().reason == "it belongs to another run"
            for task in waiting:
                task.cancel()
            assert not here.neighbours()
        finally:
            await other.close()


async def test_two_who_dial_each_other_at_once_keep_one_connection() -> None:
    async with members(2, grace=0.0) as peers:
        for round_ in range(20):
            peers[round_ % 2].publish(round_, b"x" * round_)
            assert (await peers[1 - round_ % 2].receive()).round == round_
        links = [peer._roster.links()[0] for peer in peers]
        assert len(peers[0]._roster._live) == len(peers[1]._roster._live) == 1
        smaller = min(peers, key=lambda peer: peer.id)
        assert [link.dialled for link in links] == [peer is smaller for peer in peers]


async def test_a_member_that_starts_again_takes_its_place() -> None:
    async with strangers(1) as (here,):
        secret = os.urandom(32)
        before = await open_peer(secret=secret)
        await assemble([here, before])
        # The first life hangs: it never says goodbye, and `here` still believes in it.
        for seat in before._roster._seats.values():
            assert seat.dialler is not None
            seat.dialler.cancel()
        after = await open_peer(secret=secret)
        try:
            await after.members(roster([here, after]))
            assert await after.connected([here.id], 10)
            here.publish(1, b"welcome back")
            assert (await after.receive()).head == b"welcome back"
        finally:
            await before.close()
            await after.close()


async def test_a_message_reaches_a_pair_that_cannot_connect() -> None:
    async with strangers(5) as peers:
        a, b, *others = peers
        nowhere = await open_peer()
        await nowhere.close()
        await a.members(roster(peers) | {b.id: nowhere.address})
        await b.members(roster(peers) | {a.id: nowhere.address})
        await assemble(others, roster(peers))
        a.publish(1, b"small", os.urandom(1000))
        b.publish(1, b"large", os.urandom(200_000))

        async def sizes(peer: Peer, count: int) -> list[int]:
            return sorted([len(await peer.body(m, 200_000)) for m in await heard(peer, count)])

        counts = [1, 1, 2, 2, 2]
        got = await asyncio.gather(*map(sizes, peers, counts))
        assert got == [[200_000], [1000]] + 3 * [[1000, 200_000]]
        assert b.id not in a.neighbours()


async def test_a_member_that_connects_late_gets_what_it_missed() -> None:
    async with members(2) as peers, strangers(1) as (late,):
        for round_ in (3, 4):
            peers[0].publish(round_, b"early")
        for peer in peers:
            peer.expire(4)
        everybody = [*peers, late]
        for peer in everybody:
            await peer.members(roster(everybody))
        message = await late.receive()
        assert (message.round, message.head) == (4, b"early")
        assert not late._inbox


ECHO = RpcMethod("echo", str, str)


async def test_a_question_is_answered_refused_or_given_up() -> None:
    async with members(2) as (asker, other):
        never = asyncio.Event()

        async def echo(who: bytes, question: str) -> str:
            assert who == asker.id
            if question == "no":
                raise CallRefused("I would rather not")
            if question == "wait":
                await never.wait()
            if question == "fail":
                raise ZeroDivisionError
            return question[::-1]

        with pytest.raises(CallRefused, match="no such method"):
            await asker.ask(other.id, ECHO, "abc")
        other.answer(ECHO, echo)
        assert await asker.ask(other.id, ECHO, "abc") == "cba"
        with pytest.raises(CallRefused, match="I would rather not"):
            await asker.ask(other.id, ECHO, "no")
        with pytest.raises(CallRefused, match="it failed"):
            await asker.ask(other.id, ECHO, "fail")
        with pytest.raises(NoAnswer, match=r"within 0\.2 s"):
            await asker.ask(other.id, ECHO, "wait", seconds=0.2)
        with pytest.raises(NoAnswer, match="not connected"):
            await asker.ask(bytes(32), ECHO, "abc")
        wrong = RpcMethod("echo", int, str)
        with pytest.raises(CallRefused, match="cannot be read"):
            await asker.ask(other.id, wrong, 5)
        assert await asker.ask(other.id, ECHO, "still here") == "ereh llits"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (PeerConfig(bind="192.0.2.77:1"), "could not listen on 192.0.2.77:1"),
        (PeerConfig(bind="nowhere"), "could not listen on nowhere"),
        (PeerConfig(relays=("not a url",)), "`relays` must be urls"),
    ],
)
async def test_a_configuration_that_cannot_work_is_a_sentence(config: PeerConfig, why: str) -> None:
    with pytest.raises((OSError, ValueError), match=why):
        await open_peer(config)


async def test_a_member_whose_address_is_nonsense_is_unreachable_and_nothing_more() -> None:
    async with members(2) as peers:
        for address in (b"", b"garbage", encode_address(Address(("nowhere",), "not a url"))):
            stranger = os.urandom(32)
            await peers[0].members(roster(peers) | {stranger: address})
            await told(peers[0]).until(DialFailed, lambda e, s=stranger: e.peer == s)
        peers[0].publish(1, b"we go on")
        assert (await peers[1].receive()).head == b"we go on"
