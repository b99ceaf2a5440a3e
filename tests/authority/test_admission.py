"""What strangers cost a server: memory, and the time of the others."""

import asyncio
from pathlib import Path

import grpc
import pytest

from authority.stranger import flood, replay, served
from folkmoot.authority.server import admission
from folkmoot.authority.server.admission import Admission, Crowded, address_of
from folkmoot.authority.server.client import ServerAuthority
from folkmoot.core.coordinator import messages as m
from folkmoot.host.signing import Identity
from folkmoot.host.tasks import end_tasks

MB = 1_000_000


async def test_badly_signed_messages_leave_nothing_in_the_servers_memory(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        await flood(server.address, 500_000, 40, 8)  # what a first request loads
        before = server.memory()
        told = await flood(server.address, 500_000, 160, 16, connections=4)
        assert told == {grpc.StatusCode.UNAUTHENTICATED: 160}
        assert server.memory() < before + 50 * MB, "of 80 MB that were sent"


async def test_replays_are_refused_cheaply_and_slowed_down(tmp_path: Path) -> None:
    honest = Identity.random()
    with served(tmp_path) as server:
        authority = ServerAuthority(server.address, "moot", honest)
        assert await authority.submit(m.Join(honest.public, "moot")) is None
        attack = asyncio.create_task(replay(server.address, 64, 4.0))
        while not attack.done():
            assert await authority.submit(m.HealthCheck(honest.public)) is None
        assert await attack < 300, "a few are forgiven, then one every quarter of a second"
        await authority.close()


async def entered(entry: Admission, peer: str, count: int) -> list["asyncio.Task[None]"]:
    """So many come from `peer`, and stay where they are."""

    async def stay() -> None:
        async with entry.passing(peer):
            inside.append(peer)
            await asyncio.Event().wait()

    inside: list[str] = []
    tasks = [asyncio.create_task(stay()) for _ in range(count)]
    for _ in range(5):
        await asyncio.sleep(0)
    tasks[0].set_name(str(len(inside)))
    return tasks


async def test_one_address_cannot_take_the_places_of_others() -> None:
    entry = Admission()
    crowd = await entered(entry, "ipv4:10.0.0.1:1", 100)
    assert crowd[0].get_name() == str(admission.READING_OF_ONE)
    async with asyncio.timeout(60), entry.passing("ipv4:10.0.0.2:1"):
        pass
    await end_tasks(crowd)
    assert entry.waiting == 0
    async with asyncio.timeout(60), entry.passing("ipv4:10.0.0.1:1"):
        pass


async def test_many_addresses_have_no_more_read_at_a_time_than_a_server_reads() -> None:
    entry = Admission()
    crowds = [await entered(entry, f"ipv4:10.0.0.{n}:1", 8) for n in range(12)]
    assert sum(int(crowd[0].get_name()) for crowd in crowds) == admission.READING
    await end_tasks([task for crowd in crowds for task in crowd])


async def test_who_comes_when_too_many_wait_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "WAITING_OF_ONE", 20)
    monkeypatch.setattr(admission, "WAITING", 30)
    entry = Admission()
    crowd = await entered(entry, "ipv4:10.0.0.1:1", 20)
    with pytest.raises(Crowded, match=r"from 10\.0\.0\.1"):
        async with entry.passing("ipv4:10.0.0.1:2"):
            pass
    crowd += await entered(entry, "ipv4:10.0.0.2:1", 10)
    with pytest.raises(Crowded, match="too many requests: try again"):
        async with entry.passing("ipv4:10.0.0.3:2"):
            pass
    await end_tasks(crowd)


def test_neighbours_share_a_limit() -> None:
    assert address_of("ipv4:1.2.3.4:567") == "1.2.3.4"
    assert address_of("ipv6:%5B2001:db8::1%5D:567") == address_of("ipv6:[2001:db8::2]:9")
    assert address_of("ipv6:%5B2001:db8:0:1::1%5D:567") != address_of("ipv6:[2001:db8::2]:9")
    assert address_of("ipv6:%5B::ffff:1.2.3.4%5D:567") == "1.2.3.4"
    assert address_of("unix:/tmp/x") == "unix:/tmp/x"
