"""Many wait for one key; those who only look at it do not wake them."""

import threading
import time

import pytest

from folkmoot.authority.store.kv.open import open_store
from folkmoot.authority.store.kv.tcp import TcpStore


def test_who_looks_at_a_missing_key_keeps_nobody_busy(
    tcp_store_url: str, store_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TCPStore wakes all who wait for a key when it is read: they would wake each other."""
    reads: list[str] = []
    read = TcpStore.get

    def counted(self: TcpStore, key: str) -> bytes | None:
        reads.append(key)
        return read(self, key)

    monkeypatch.setattr(TcpStore, "get", counted)
    stores = [open_store(tcp_store_url, store_prefix) for _ in range(9)]
    began = time.monotonic()
    waiting = [threading.Thread(target=store.wait, args=("key", 1.0)) for store in stores[1:]]
    for thread in waiting:
        thread.start()
    for _ in range(5):
        assert stores[0].get("key") is None
    for thread in waiting:
        thread.join()
    assert time.monotonic() - began >= 1.0
    assert len(reads) == 5
    for store in stores:
        store.close()
