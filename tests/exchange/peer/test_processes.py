"""Members in processes of their own that stop, and are killed."""

import signal

from exchange.peer.provider import known_bytes, provider_process
from folkmoot.core.content import PIECE
from folkmoot.exchange.peer import Connected, Disconnected, PeerConfig
from support.peers import heard, strangers, told

WATCHFUL = PeerConfig(silence=4.0, stall=1.0)


async def test_a_member_that_is_killed_is_missed_and_the_others_go_on() -> None:
    async with (
        strangers(2, WATCHFUL) as (here, other),
        provider_process(here, PIECE) as (process, killed, address),
    ):
        await here.members({killed: address, other.id: other.address})
        await other.members({here.id: here.address})
        (message,) = await heard(here, 1)
        assert (message.origin, message.head) == (killed, b"hello from another process")
        process.kill()
        gone = await told(here).until(Disconnected)
        assert (gone.peer, gone.reason) == (killed, "no packet came from it for 4 s")
        here.publish(2, b"we go on")
        assert b"we go on" in {m.head for m in await heard(other, 1)}


async def test_a_member_that_is_stopped_comes_back_when_it_goes_on() -> None:
    async with (
        strangers(1, WATCHFUL) as (here,),
        provider_process(here, PIECE) as (process, stopped, address),
    ):
        await here.members({stopped: address})
        await told(here).until(Connected)
        process.send_signal(signal.SIGSTOP)
        await told(here).until(Disconnected)
        here.publish(2, b"while you were away")
        process.send_signal(signal.SIGCONT)
        assert await here.connected([stopped], 30)
        name = here.put(known_bytes(PIECE))
        here.drop(name)
        assert await here.get(name, [stopped], 2 * PIECE) == known_bytes(PIECE)
