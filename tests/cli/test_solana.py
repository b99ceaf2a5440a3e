"""`folkmoot solana` as people run it."""

import asyncio
import json
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from solders.keypair import Keypair

from folkmoot.authority.solana.localnet.serve import serving
from folkmoot.host.signing import Identity
from folkmoot.runs import control
from support import commands
from support.commands import ended, folkmoot, printed, start


def ask(url: str, method: str, *params: object) -> object:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    request = Request(url, body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)["result"]


def test_a_localnet_says_where_it_is_funds_a_key_and_ends_when_asked() -> None:
    key = str(Keypair().pubkey())
    with start("solana", "localnet", "--port", "0", "--fund", key) as it:
        assert it.stdout
        first = it.stdout.readline()
        url = re.match(r"localnet at (http://127\.0\.0\.1:\d+), ", first)
        assert url, first
        balance = ask(url[1], "getBalance", key)
        assert isinstance(balance, dict)
        assert balance["value"] == 1000 * 10**9
        assert "stopped; the network is gone" in ended(it, signal.SIGTERM)


def test_a_key_that_is_none_is_one_sentence() -> None:
    assert "x is not a public key: give 64 hex" in refused("localnet", "--fund", "x")
    for key in ("x", "z" * 64, "1" * 63):
        where = ("solana:moot@http://127.0.0.1:9", key, "--key", "none")
        assert f"{key} is not a public key" in refused("authorize", *where)


@pytest.fixture
def localnet() -> Iterator[str]:
    """The url of a network that another thread serves."""
    ready, urls = threading.Event(), []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with serving(slot_seconds=0.1) as net:
            urls.append(net.url)
            ready.set()
            await asyncio.Event().wait()

    task = loop.create_task(serve())

    def run() -> None:
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(120)
    yield urls[0]
    loop.call_soon_threadsafe(task.cancel)
    thread.join()


def say(*words: str) -> str:
    return printed("solana", *words)


def refused(*words: str) -> str:
    return commands.refused("solana", *words)


FILE = """
run_id = "moot"
[config]
total_steps = {steps}
"""


def test_an_owner_puts_a_run_on_chain_steers_it_and_closes_it(
    localnet: str, tmp_path: Path
) -> None:
    file, key = tmp_path / "run.toml", str(tmp_path / "id.json")
    owner = Keypair()
    Path(key).write_text(owner.to_json())
    file.write_text(FILE.format(steps=4))
    where = ("--url", localnet, "--key", key)
    made = say("create-run", str(file), *where, "--closed", "--points", "9")
    url = f"solana:moot@{localnet}"
    assert f"folkmoot join {url}" in made
    assert f"{owner.pubkey()} pays" in made
    assert "was there already" in say("create-run", str(file), *where)
    assert "moot: WaitingForMembers" in say("status", url)
    assert "nothing is due" in refused("tick", url, "--key", key)
    stranger = tmp_path / "stranger.key"
    Identity.load(stranger)
    assert "only the run's owner" in refused("pause", url, "--key", str(stranger))
    assert "moot: Paused" in say("pause", url, "--key", key)
    assert "moot: Paused" in say("status", url)
    file.write_text(FILE.format(steps=9))
    assert "config.total_steps: 4 -> 9" in say("update", url, str(file), "--key", key)
    assert "nothing to change" in say("update", url, str(file), "--key", key)
    file.write_text(FILE.format(steps=9) + "max_clients = 257\n")
    assert "config.max_clients must be at most 256" in refused(
        "update", url, str(file), "--key", key
    )
    clients = [str(Keypair().pubkey()), Identity.random().public.hex()]
    assert "2 authorized" in say("authorize", url, *clients, "--key", key)
    assert "0 authorized, 2 already" in say("authorize", url, *clients, "--key", key)
    assert "2 revoked" in say("authorize", url, *clients, "--revoke", "--key", key)
    assert "moot: WaitingForMembers" in say("resume", url, "--key", key)
    assert "closed" in say("close", url, "--key", key)
    for gone in (("status", url), ("close", url, "--key", key), ("tick", url, "--key", key)):
        assert "there is no such run" in refused(*gone)


def test_nobody_who_listens_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "PATIENCE", 0.5)
    key = tmp_path / "owner.key"
    Identity.load(key)
    url = "solana:moot@http://127.0.0.1:9"
    for words in (("status", url), ("pause", url, "--key", str(key))):
        assert "nobody listens there; is the node running" in refused(*words)
    assert "nobody listens" in folkmoot("status", url, "--run-id", "moot").output


def test_a_run_on_solana_is_joined_by_its_url_alone(localnet: str, tmp_path: Path) -> None:
    """No other name is asked for; a server may keep several."""
    done = folkmoot("join", f"solana:moot@{localnet}", "--folder", tmp_path)
    assert "joins run 'moot'" in done.output
    assert "there is no such run" in done.output
    assert "name the one to join with --run-id" in folkmoot("join", "127.0.0.1:7400").output


def test_a_url_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    assert "expected solana:<run_id>@" in refused("status", "moot")
