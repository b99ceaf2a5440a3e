"""`folkmoot solana` as people run it."""

import asyncio
import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from solders.keypair import Keypair

from folkmoot.authority.solana.localnet.serve import serving
from folkmoot.host.signing import Identity
from support.commands import FOLKMOOT, folkmoot

LOCALNET = [*FOLKMOOT, "solana", "localnet"]


def ask(url: str, method: str, *params: object) -> object:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    request = Request(url, body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)["result"]


def test_a_localnet_says_where_it_is_funds_a_key_and_ends_when_asked() -> None:
    key = str(Keypair().pubkey())
    command = [*LOCALNET, "--port", "0", "--fund", key]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:
        assert it.stdout
        first = it.stdout.readline()
        url = re.match(r"localnet at (http://127\.0\.0\.1:\d+), ", first)
        assert url, first
        balance = ask(url[1], "getBalance", key)
        assert isinstance(balance, dict)
        assert balance["value"] == 1000 * 10**9
        it.send_signal(signal.SIGTERM)
        out, err = it.communicate(timeout=60)
        assert it.returncode == 0
        assert "stopped; the network is gone" in out
        assert "Traceback" not in err


def test_a_key_that_is_none_is_one_sentence() -> None:
    assert folkmoot("solana", "localnet", "--fund", "x").exit_code == 1


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
    done = folkmoot("solana", *words)
    assert done.exit_code == 0, done.output
    return done.output


def refused(*words: str) -> str:
    done = folkmoot("solana", *words)
    assert done.exit_code == 1
    return done.output


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
    clients = [str(Keypair().pubkey()), Identity.random().public.hex()]
    assert "2 authorized" in say("authorize", url, *clients, "--key", key)
    assert "2 revoked" in say("authorize", url, *clients, "--revoke", "--key", key)
    assert "moot: WaitingForMembers" in say("resume", url, "--key", key)
    assert "closed" in say("close", url, "--key", key)
    assert "there is no such run" in refused("status", url)


def test_a_url_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    assert "expected solana:<run_id>@" in refused("status", "moot")
