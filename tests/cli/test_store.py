"""`folkmoot store serve` as people run it."""

import os
import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from folkmoot.authority.store.kv.open import open_store
from support.commands import ended, folkmoot, ran, start


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_says_its_url_serves_and_ends_when_asked(end: signal.Signals) -> None:
    with start("store", "serve", "--port", "0") as it:
        assert it.stdout
        first = it.stdout.readline()
        url = re.fullmatch(r"store at (tcp://127\.0\.0\.1:\d+)\n", first)
        assert url, first
        store = open_store(url[1])
        assert store.add("count", 2) == 2
        assert "stopped; what it held is gone" in ended(it, end)
        store.close()


def test_it_listens_only_where_it_is_told(tcp_store_url: str) -> None:
    """torch's own socket would listen at every address of the machine."""
    port = int(tcp_store_url.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), 5).close()


def test_a_taken_port_is_one_sentence(tcp_store_url: str) -> None:
    port = tcp_store_url.rpartition(":")[2]
    done = ran("store", "serve", "--port", port)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert re.search(rf"cannot listen at 127.0.0.1:{port}: .* give another --port", last)


def test_help_says_that_nothing_is_kept_and_what_keeps_it() -> None:
    said = " ".join(folkmoot("store", "serve", "--help").stdout.split())
    assert "nothing on disk" in said
    assert "etcd://" in said


def test_without_torch_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no module named torch')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = ran("store", "serve", "--port", "0", env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 1
    assert "pip install 'folkmoot[train]', or use etcd" in done.stderr
    assert "Traceback" not in done.stderr
