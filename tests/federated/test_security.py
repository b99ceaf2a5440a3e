"""TLS and mutual TLS from the config; the metrics endpoint; what a restart finds."""

import asyncio
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import msgspec
import numpy as np
import pytest

from folkmoot.federated import ClientTls
from folkmoot.federated.coordinator.config import MetricsConfig
from folkmoot.federated.coordinator.events import AggregationFailed
from folkmoot.host.journal import JournalError
from support.certificates import LoopbackAuthority
from support.federation import (
    PlusOne,
    code_of,
    federation_config,
    running_federation,
    tls_security,
)


@pytest.mark.parametrize("mutual", [False, True])
async def test_a_federation_over_tls(tmp_path: Path, mutual: bool) -> None:
    authority = LoopbackAuthority(tmp_path, "authority")
    security = tls_security(authority, mutual=mutual)
    config = federation_config(tmp_path, {"rounds": 2}, security=security)
    async with running_federation(tmp_path, config) as w:
        tls = ClientTls(authority.file, *(authority.sign("client") if mutual else ()))
        plain = w.participant("plain")
        assert await code_of(plain.rendezvous()) == grpc.StatusCode.UNAVAILABLE
        if mutual:
            nobody = w.participant("nobody", tls=ClientTls(authority.file))
            assert await code_of(nobody.rendezvous()) == grpc.StatusCode.UNAVAILABLE
        await w.take_part(PlusOne(3), tls=tls)
        assert w.state.phase == "FINISHED"


async def test_prometheus_is_told_how_the_federation_does(tmp_path: Path) -> None:
    metrics = MetricsConfig(enable=True, port=0)
    config = federation_config(tmp_path, {"min_participants": 2}, metrics=metrics)
    async with running_federation(tmp_path, config) as w:
        (a,) = await w.join("a")
        await a.beat()
        url = f"http://127.0.0.1:{w.server.metrics_port}/metrics"
        text = (await asyncio.to_thread(_read, url)).decode()
        assert 'folkmoot_federation_state{state="STANDBY"} 1.0' in text
        assert "folkmoot_federation_connected_participants 1.0" in text
        assert 'requests_total{method="Heartbeat",status="OK"} 1.0' in text


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


async def test_a_state_folder_serves_one_coordinator_and_one_run(tmp_path: Path) -> None:
    config = federation_config(tmp_path, {})
    async with running_federation(tmp_path, config):
        with pytest.raises(JournalError, match="in use"):
            async with running_federation(tmp_path, config):
                pass
    with pytest.raises(JournalError, match="belongs to 'test', not to 'other'"):
        async with running_federation(tmp_path, msgspec.structs.replace(config, run_id="other")):
            pass
    with pytest.raises(JournalError, match="epochs was 1, is 2"):
        async with running_federation(tmp_path, federation_config(tmp_path, {"epochs": 2})):
            pass


async def test_a_lost_update_is_asked_for_again_after_a_restart(tmp_path: Path) -> None:
    """A power cut may take an update that was never synced; its digest tells."""
    config = federation_config(tmp_path, {"min_participants": 2})
    async with running_federation(tmp_path, config) as w:
        a, _ = await w.join("a", "b")
        await a.deliver(1.0)
        key = f"0/{a.participant_id}"
        kept = w.coordinator.store.taken(w.state.deliveries[key])
    kept.unlink()
    (tmp_path / "state/bucket" / key).write_bytes(b"torn")
    async with running_federation(tmp_path, config) as w:
        assert w.state.deliveries == {}
        a, b = await w.join("a", "b")
        await a.deliver(1.0)
        await b.deliver(3.0)
        assert await w.global_of(1) == [2.0]


async def test_a_full_disk_delays_a_round_and_loses_nothing(
    tmp_path: Path, small_disk: Path
) -> None:
    config = federation_config(small_disk, {"rounds": 1, "min_participants": 2})
    async with running_federation(small_disk, config) as w:
        a, b = await w.join("a", "b")
        await a.deliver(np.full(300_000, 1.0))
        digest = b.upload(np.full(300_000, 3.0))
        failed = _noticed(w.coordinator, AggregationFailed)
        filler = small_disk / "filler"
        _fill(filler)
        await b.end(digest)
        await failed.wait()
        assert w.state.round == 0
        await asyncio.to_thread(filler.unlink)
        assert (await w.global_of(1)).tolist() == [2.0] * 300_000


def _noticed(coordinator: Any, kind: type) -> asyncio.Event:
    """Set when the coordinator logs an event of this kind."""
    seen, write = asyncio.Event(), coordinator.log.write

    def watched(event: Any) -> None:
        write(event)
        if isinstance(event, kind):
            seen.set()

    coordinator.log.write = watched
    return seen


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(65_536)):
                pass
        except OSError:
            return
