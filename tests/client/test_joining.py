"""What a client says while it joins: what it waits for, and why it will not go on."""

import asyncio
import socket
from pathlib import Path

import pytest

from folkmoot.authority import Denied
from folkmoot.authority.server import client
from folkmoot.client import events
from folkmoot.client.places import ALL
from folkmoot.client.waiting import waits_for
from folkmoot.core import coordinator
from folkmoot.core.coordinator import messages as m
from folkmoot.exchange.peer.address import Address, encode_address
from folkmoot.host.event_log import Record
from folkmoot.host.tasks import end_tasks
from folkmoot.observe.narrator import Narrator
from folkmoot.runs.join import join_run
from folkmoot.runs.serve import serve_run
from support.small_run import PATIENCE, make_run


class Told:
    """What a client told, to wait for."""

    def __init__(self) -> None:
        self.all: list[Record] = []
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def __call__(self, record: Record) -> None:
        self.all.append(record)
        self._loop.call_soon_threadsafe(self._news.set)

    async def doing(self, words: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not any(isinstance(e, events.Doing) and words in e.what for e in self.all):
                self._news.clear()
                await self._news.wait()


async def test_a_client_says_that_nobody_listens_where_it_was_sent(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    hear = Told()
    joining = asyncio.create_task(join_run(f"127.0.0.1:{port}", "moot", tmp_path, tell=hear))
    await hear.doing(f"waits for 127.0.0.1:{port}: nobody listens there; is the server running")
    await end_tasks([joining])


async def test_a_client_says_what_it_does_and_waits_for_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    async with serve_run(run, tmp_path / "server") as server:
        hear = Told()
        joining = asyncio.create_task(
            join_run(server.address, "moot", tmp_path / "ana", trust=(ALL,), tell=hear)
        )
        await hear.doing("waits for 1 more client: an epoch begins with 2")
        assert server.listening.service.changes.watchers == 1
        said = [e.what for e in hear.all if isinstance(e, events.Doing)]
        assert any("opens the data" in what for what in said)
        assert any("it is compiled first" in what for what in said)
        key = tmp_path / "ana/client.key"
        for other in ({"folder": key.parent}, {"folder": tmp_path / "bob", "key": key}):
            with pytest.raises(ValueError, match=f"another client on this machine uses {key}"):
                await join_run(server.address, "moot", **other, trust=(ALL,))
        # As on another machine, where nobody sees that the file is in use.
        copied = tmp_path / "copied.key"
        copied.write_bytes(key.read_bytes())
        monkeypatch.setattr(client, "TAKEN_PATIENCE", 0.0)
        with pytest.raises(Denied, match="a client with this key takes part already, and stays"):
            await join_run(server.address, "moot", tmp_path / "eve", key=copied, trust=(ALL,))
        await end_tasks([joining])


async def test_a_client_says_that_it_reaches_none_of_those_who_are_there(tmp_path: Path) -> None:
    run = make_run(tmp_path, min_clients=9)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))  # hears and never answers
        silent = encode_address(Address((f"127.0.0.1:{taken.getsockname()[1]}",)))
        async with serve_run(run, tmp_path / "server") as server:
            there = m.Join(b"b" * 32, "moot", b"", silent)
            assert await server.listening.keeper.submit(there) is None
            hear = Told()
            joining = asyncio.create_task(
                join_run(server.address, "moot", tmp_path / "ana", trust=(ALL,), tell=hear)
            )
            await hear.doing("reached none of 1 clients that are there: is UDP let through")
            await end_tasks([joining])


def test_what_is_waited_for_follows_from_the_state(tmp_path: Path) -> None:
    ana, bob = b"a" * 32, b"b" * 32
    state = coordinator.create(make_run(tmp_path, min_clients=3), 0)
    assert waits_for(state, ana) == "waits for 3 more clients: an epoch begins with 3"
    state = coordinator.apply(state, m.Join(ana, "moot"), 0, 0).state
    assert waits_for(state, ana) == "waits for 2 more clients: an epoch begins with 3"
    for other in (bob, b"c" * 32):
        state = coordinator.apply(state, m.Join(other, "moot"), 0, 0).state
    assert state.phase == "Warmup"
    assert waits_for(state, ana) == ""
    assert "waits for the next epoch" in waits_for(state, b"d" * 32)
    state = coordinator.apply(state, m.Pause(), 0, 0).state
    assert waits_for(state, ana) == "waits: the owner paused the run"


async def test_a_mistyped_key_is_an_error_not_a_new_key(tmp_path: Path) -> None:
    key = tmp_path / "clinet.key"
    with pytest.raises(FileNotFoundError, match=f"there is no key {key}"):
        await join_run("127.0.0.1:1", "moot", tmp_path, key=key)
    assert not key.exists()


def test_training_that_goes_well_is_a_line_now_and_then() -> None:
    said: list[str] = []
    now = 0.0
    narrate = Narrator(said.append, lambda: now)
    narrate(events.StateSeen("RoundTrain", 0, 0, 0, 3))
    for step in range(30):
        now = float(step)
        narrate(events.ShareTrained(0, step, step, 4, 2.5, 0.1, 900, 10))
    narrate(events.AuthorityUnreachable("h:1: gone"))
    narrate(events.AuthorityUnreachable("h:1: gone"))
    assert said == [
        "epoch 0 trains with 3 clients",
        *(f"step {n}, loss 2.500, 900 tokens/s here, 3 clients" for n in (0, 10, 20)),
        "cannot reach the run: h:1: gone",
    ]
