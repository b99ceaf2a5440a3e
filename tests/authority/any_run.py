"""One small run, its owner and its members, whoever keeps it."""

import asyncio
from collections.abc import Callable
from typing import Any

from folkmoot.authority import Authority
from folkmoot.authority.server.keeper import Keeper
from folkmoot.core.coordinator import Coordinator, Phase, Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.host.signing import Identity

OWNER, STRANGER = Identity(b"o" * 32), Identity(b"s" * 32)
A, B, C = (Identity(letter * 32) for letter in (b"a", b"b", b"c"))


def run(**config: Any) -> Run:
    defaults = {"total_steps": 4, "min_clients": 2, "delay": 0, "rounds_per_epoch": 2}
    return Run(
        run_id="moot",
        config=CoordinatorConfig(**{**defaults, **config}),
        model=Model(checkpoint="store/"),
    )


def join(identity: Identity) -> m.Join:
    return m.Join(identity.public, "moot")


async def until(authority: Authority, wanted: Phase | Callable[[Coordinator], Any]) -> Coordinator:
    """The state in which that phase, or what else is wanted, is seen."""
    async with asyncio.timeout(120):
        async for state in authority.watch():
            if state.phase is wanted if isinstance(wanted, Phase) else wanted(state):
                return state
    raise AssertionError("an authority is watched without end")


async def until_kept(keeper: Keeper, wanted: Phase, step: int = 0) -> Coordinator:
    """The state in which a keeper shows that phase, at that step or later."""
    async with asyncio.timeout(120):
        async for _, state in keeper.watch():
            if state.phase is wanted and state.progress.step >= step:
                return state
    raise AssertionError("a keeper is watched without end")
