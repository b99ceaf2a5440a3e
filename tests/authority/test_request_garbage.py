"""What requests leave behind is collected while a server runs, not some day."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from authority.any_run import join
from authority.served_run import connected, serving
from folkmoot.core.coordinator import messages as m
from folkmoot.host.memory import collect_seldom
from folkmoot.host.signing import Identity

REQUESTS = 2000


@pytest.fixture
def collecting_seldom() -> Iterator[None]:
    before = gc.get_threshold()
    collect_seldom()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


async def test_a_server_does_not_keep_what_requests_leave_behind(
    tmp_path: Path, collecting_seldom: None
) -> None:
    """gRPC leaves a cycle of a few objects of every request; one of them tells how many."""
    ana = Identity.random()
    async with serving(tmp_path) as server, connected(server, ana) as client:
        await client.submit(join(ana))
        gc.collect()
        for _ in range(REQUESTS):
            await client.submit(m.HealthCheck(ana.public))
        left = sum(type(one).__name__ == "_HandlerCallDetails" for one in gc.get_objects())
    assert left < REQUESTS * 2 / 3
