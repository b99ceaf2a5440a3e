"""Who cannot be reached is named: on the client's screen, and on the owner's."""

import itertools
import os
import socket
from pathlib import Path

import pytest

from folkmoot.client import events, reach
from folkmoot.client.reach import Reach
from folkmoot.core import coordinator
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.client import machine
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.state import ClientState
from folkmoot.core.identity import short
from folkmoot.core.machine import Effect
from folkmoot.exchange.peer import Connected, DialFailed, Peer
from folkmoot.exchange.peer.address import Address, encode_address
from folkmoot.host.event_log import Record
from folkmoot.observe.narrator import Narrator, ServerNarrator
from folkmoot.runs import reachable
from folkmoot.runs.reachable import bind_towards, check_reach
from support.peers import QUICK, TOPIC
from support.small_run import make_run

ANA, BOB = b"a" * 32, b"b" * 32
NOWHERE = encode_address(Address(("10.7.0.5:4711",)))


def test_a_client_names_whom_it_cannot_reach_until_it_does() -> None:
    now, said, sent = 0.0, list[str](), list[tuple[bytes, ...]]()
    narrate = Narrator(said.append)
    told = Reach(narrate, sent.append, lambda: now)
    told.members({BOB: NOWHERE})
    told.noticed(DialFailed(BOB, "time was up"))
    assert not said
    now = reach.PATIENCE
    for _ in range(3):
        told.noticed(DialFailed(BOB, "time was up"))
    told.noticed(Connected(BOB, True))
    name = short(BOB)
    assert said == [
        f"cannot reach client {name} at 10.7.0.5:4711: time was up",
        f"reached client {name}",
    ]
    assert sent == [(BOB,), ()]


def test_a_peers_address_cannot_write_on_the_terminal() -> None:
    times, said = itertools.count(step=reach.PATIENCE), list[str]()
    told = Reach(Narrator(said.append), lambda peers: None, times.__next__)
    told.members({BOB: encode_address(Address(("\x1b[2J\x1b]0;boo\x07\x9b1A:1",)))})
    told.noticed(DialFailed(BOB, "no\r\nway"))
    (line,) = said
    assert line.isprintable()
    assert "boo" in line


def test_the_owner_sees_whom_a_member_cannot_reach(tmp_path: Path) -> None:
    state = coordinator.create(make_run(tmp_path), 0)
    for who in (ANA, BOB):
        state = coordinator.apply(state, m.Join(who, "moot"), 0, 0).state
    client = ClientState(ANA, "moot")
    machine.apply(client, c.Saw(state), 0)
    machine.apply(client, c.Unreachable((BOB,)), 0)
    submits = [e.message for e in machine.apply(client, c.Tick(), 10**6) if isinstance(e, c.Submit)]
    (sign,) = [message for message in submits if isinstance(message, m.HealthCheck)]
    effects: list[Effect] = list(coordinator.apply(state, sign, 1, 0).effects)
    said: list[str] = []
    narrate = ServerNarrator(said.append)
    for effect in effects * 2:
        narrate(effect)
    assert said == [f"client {short(ANA)} cannot reach {short(BOB)}"]


async def test_a_joining_client_says_which_of_those_who_are_there_do_not_answer(
    tmp_path: Path,
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))  # hears and never answers
        silent = encode_address(Address((f"127.0.0.1:{taken.getsockname()[1]}",)))
        async with (
            await Peer.open(os.urandom(32), TOPIC, QUICK) as there,
            await Peer.open(os.urandom(32), TOPIC, QUICK) as newcomer,
            await Peer.open(os.urandom(32), TOPIC, QUICK) as gone,
        ):
            state = coordinator.create(make_run(tmp_path, min_clients=9), 0)
            for who, address in ((there.id, there.address), (gone.id, silent)):
                state = coordinator.apply(state, m.Join(who, "moot", b"", address), 0, 0).state
            told: list[Record] = []
            await check_reach(newcomer, state, told.append)
    assert [e.peer for e in told if isinstance(e, events.PeerUnreachable)] == [short(gone.id)]


def test_a_client_listens_where_the_way_to_the_run_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bind_towards("127.0.0.1:7400", None, False) == "127.0.0.1:0"
    hosts: list[str] = []

    def towards(host: str) -> str:
        hosts.append(host)
        return "10.7.0.9"

    monkeypatch.setattr(reachable, "address_towards", towards)
    for url in ("10.7.0.5:7400", "store:tcp://10.7.0.5:1", "store:etcd://10.7.0.5:1,10.7.0.6:1"):
        assert bind_towards(url, None, False) == "10.7.0.9:0"
    assert set(hosts) == {"10.7.0.5"}
    assert bind_towards("10.7.0.5:7400", "127.0.0.1:0", True) == "127.0.0.1:0"
    with pytest.raises(ValueError, match="peers on other machines cannot reach this one there"):
        bind_towards("10.7.0.5:7400", "127.0.0.1:0", False)
