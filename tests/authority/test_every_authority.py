"""What an authority promises its clients, the same whoever keeps the run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from authority.any_run import run, until
from folkmoot.authority import Authority, Denied
from folkmoot.authority.server.claims import Claims
from folkmoot.core.coordinator import Coordinator, Phase, encode
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.view import view
from folkmoot.core.machine import Effect
from folkmoot.host.signing import Identity
from folkmoot.runs.stored_checkpoint import check_stored
from support.authorities import AUTHORITIES, OWNER, EtcdKeeper, RunKeeper

A, B, C, STRANGER = (Identity(bytes([seed]) * 32) for seed in (1, 2, 3, 4))
NOT_THE_OWNER = r"only (an|the run's) owner"


class Kept:
    """A run, and authorities as clients use them."""

    def __init__(self) -> None:
        self.keeper: RunKeeper
        self._opened, self._news = list[Authority](), asyncio.Event()

    def noted(self, effect: Effect, now: int) -> None:
        self._news.set()

    async def until(self, wanted: Callable[[Coordinator], Any]) -> Coordinator:
        """The keeper's state: who follows a store hears of a record later than who wrote it."""
        async with asyncio.timeout(120):
            while not wanted(self.keeper.state):
                self._news.clear()
                await self._news.wait()
        return self.keeper.state

    def open(self, *identities: Identity) -> list[Authority]:
        opened = [self.keeper.open(identity) for identity in identities]
        self._opened += opened
        return opened

    def join(self, identity: Identity) -> m.Join:
        return m.Join(identity.public, self.keeper.state.run.run_id)

    async def members(self, *identities: Identity) -> list[Authority]:
        opened = self.open(*identities)
        for identity, authority in zip(identities, opened, strict=True):
            assert await authority.submit(self.join(identity)) is None
        return opened

    async def close(self) -> None:
        await asyncio.gather(*(authority.close() for authority in self._opened))


Keep = Callable[..., AbstractAsyncContextManager[Kept]]


@pytest.fixture(params=AUTHORITIES)
def keep(request: pytest.FixtureRequest, tmp_path: Path) -> Keep:
    if request.param == "etcd":
        EtcdKeeper.url = request.getfixturevalue("etcd_url")
    kind = AUTHORITIES[request.param]

    @asynccontextmanager
    async def kept(**config: Any) -> AsyncIterator[Kept]:
        made = replace(run(**{"max_clients": 20, **config}), run_id=f"moot-{uuid4().hex[:8]}")
        it = Kept()
        async with kind.keep(made, tmp_path, it.noted, Claims(check_stored)) as it.keeper:
            try:
                yield it
            finally:
                await it.close()

    return kept


def in_phase(phase: Phase) -> Callable[[Coordinator], bool]:
    return lambda state: state.phase is phase


async def test_clients_join_and_see_the_run_move(keep: Keep) -> None:
    async with keep() as it:
        at_a, at_b = it.open(A, B)
        assert await at_a.submit(it.join(A)) is None
        watching = asyncio.create_task(until(at_a, Phase.RoundTrain))
        assert await at_b.submit(it.join(B)) is None
        await until(at_b, Phase.Warmup)
        for identity, authority in ((A, at_a), (B, at_b)):
            assert await authority.submit(m.Ready(identity.public, 0)) is None
        await watching
        assert await at_a.submit(m.Ready(A.public, 0)) == m.refusal(m.Reason.WrongState)
        assert all(count > 0 for count in at_a.traffic())
        assert at_a.last_error == ""


async def test_all_see_the_same_state_and_one_who_comes_late_too(keep: Keep) -> None:
    async with keep(min_clients=3) as it:
        clients = await it.members(A, B, C)
        late = it.open(STRANGER)
        states = [await until(at, Phase.Warmup) for at in (*clients, *late)]
        states.append(view(await it.until(in_phase(Phase.Warmup))))
        assert len({encode(state) for state in states}) == 1


async def test_a_phase_ends_after_its_time_with_nobody_saying_anything(keep: Keep) -> None:
    times = {"warmup_time": 1.0, "max_round_train_time": 1.0, "round_witness_time": 1.0}
    async with keep(rounds_per_epoch=9, **times) as it:
        _, at_b = await it.members(A, B)
        await until(at_b, lambda state: state.epoch.rounds and state.round.height >= 1)


async def test_who_is_silent_is_removed_while_others_talk(keep: Keep) -> None:
    async with keep(min_clients=3, health_check_timeout=5.0) as it:
        at_a, at_b = await it.members(A, B)
        await it.until(lambda state: len(state.pending) == 2)
        await at_a.close()
        async with asyncio.timeout(120):
            while it.keeper.state.pending.get(A.public) is not None:
                if await at_b.submit(m.HealthCheck(B.public)) is not None:
                    await at_b.submit(it.join(B))  # on a busy machine B is silent for as long


async def test_what_is_said_at_once_is_all_answered(keep: Keep) -> None:
    identities = [Identity(bytes([number]) * 32) for number in range(1, 13)]
    async with keep(min_clients=20) as it:
        pairs = list(zip(identities, it.open(*identities), strict=True))
        answers = await asyncio.gather(*(at.submit(it.join(who)) for who, at in pairs))
        assert answers == [None] * 12
        await until(pairs[0][1], lambda state: len(state.pending) == 12)


async def test_what_is_said_again_is_answered_by_the_rules(keep: Keep) -> None:
    async with keep(min_clients=3) as it:
        (at_a,) = it.open(A)
        for _ in range(2):  # who waits may say anew where it is
            assert await at_a.submit(it.join(A)) is None
        assert await at_a.submit(m.Withdraw(A.public)) is None
        assert await at_a.submit(m.Withdraw(A.public)) == m.refusal(m.Reason.NotAMember)


async def test_nobody_speaks_for_another(keep: Keep) -> None:
    async with keep() as it:
        (at_a,) = it.open(A)
        with pytest.raises(Denied, match="another sender"):
            await at_a.submit(it.join(B))
        assert len(it.keeper.state.pending) == 0


async def test_only_an_owner_pauses_and_is_shown_at_once_that_it_did(keep: Keep) -> None:
    async with keep() as it:
        at_a, owner = it.open(A, OWNER)
        with pytest.raises(Denied, match=NOT_THE_OWNER):
            await at_a.submit(m.Pause())
        orders = (m.Pause(), Phase.Paused), (m.Resume(), Phase.WaitingForMembers)
        for message, phase in orders:
            assert await owner.submit(message) is None
            assert (await anext(owner.watch())).phase is phase
        assert await owner.submit(m.Resume()) == m.refusal(m.Reason.NotPausing)


async def test_an_owner_changes_a_run(keep: Keep) -> None:
    async with keep() as it:
        at_a, owner = it.open(A, OWNER)
        before = it.keeper.state.run
        changed = replace(before, config=replace(before.config, total_steps=9))
        with pytest.raises(Denied, match=NOT_THE_OWNER):
            await at_a.submit(m.Update(changed))
        assert await owner.submit(m.Update(changed)) is None
        shown = await until(at_a, lambda state: state.run.config.total_steps == 9)
        assert shown.run == changed
