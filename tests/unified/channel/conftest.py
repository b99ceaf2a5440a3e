"""Channels over each kind of socket."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from folkmoot.unified.channel import ChannelRules
from support.channels import Held


@pytest.fixture(params=["unix", "tcp"])
def hold(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Held]]:
    held: list[Held] = []

    def make(**rules: int) -> Held:
        folder = tmp_path / f"channels {len(held)}"
        address = f"unix:{folder}/socket" if request.param == "unix" else "tcp:127.0.0.1:0"
        held.append(Held(folder, ChannelRules(**rules), address))
        return held[-1]

    yield make
    for one in held:
        one.close()
