"""`folkmoot solana` as people run it."""

import json
import re
import signal
import subprocess
import sys
from urllib.request import Request, urlopen

from solders.keypair import Keypair

LOCALNET = [sys.executable, "-m", "folkmoot", "solana", "localnet"]


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
    done = subprocess.run([*LOCALNET, "--fund", "x"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
