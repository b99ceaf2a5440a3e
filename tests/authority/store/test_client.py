"""The authority of a run in a store: what it takes, what it refuses, and what it survives."""

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from authority.any_run import OWNER, STRANGER, A, B, C, join, run, until
from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.access import Access
from folkmoot.authority.open import open_authority
from folkmoot.authority.store import keys
from folkmoot.authority.store.client import StoreAuthority
from folkmoot.authority.store.create import create_run
from folkmoot.authority.store.kv.open import open_store
from folkmoot.authority.store.kv.tcp_server import listen
from folkmoot.core.coordinator import Phase, encode
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.view import view
from folkmoot.host.signing import Identity
from support.etcd import Etcd

OPEN = Access(owners=frozenset({OWNER.public}))


@pytest.fixture(params=["memory", "tcp", "etcd"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "etcd":
        etcd = Etcd(tmp_path / "etcd")
        yield etcd.url
        etcd.stop()
        return
    if request.param == "memory":
        yield f"memory://{secrets.token_hex(8)}"
        return
    server, url = listen("127.0.0.1", 0)
    yield url
    del server


def create(url: str, access: Access = OPEN, **config: Any) -> None:
    store = open_store(url, "moot")
    create_run(store, run(**config), access, OWNER)
    store.close()


@asynccontextmanager
async def connected(
    url: str, *identities: Identity, run_id: str = "moot"
) -> AsyncIterator[list[StoreAuthority]]:
    opened = [StoreAuthority(url, run_id, identity) for identity in identities]
    try:
        yield opened
    finally:
        await asyncio.gather(*(authority.close() for authority in opened))


async def test_all_see_the_same_state_and_one_who_comes_late_too(url: str) -> None:
    create(url, min_clients=3)
    async with connected(url, A, B, C) as clients:
        for identity, authority in zip((A, B, C), clients, strict=True):
            assert await authority.submit(join(identity)) is None
        states = [await until(authority, Phase.Warmup) for authority in clients]
        async with connected(url, STRANGER) as (late,):
            states.append(await until(late, Phase.Warmup))
            assert late.place is not None
            states.append(view(late.place.state))
        assert len({encode(state) for state in states}) == 1


async def test_a_phase_ends_after_its_time_with_nobody_saying_anything(url: str) -> None:
    create(url, warmup_time=0.4, max_round_train_time=60)
    async with connected(url, A, B) as (at_a, at_b):
        for identity, authority in ((A, at_a), (B, at_b)):
            await authority.submit(join(identity))
        state = await until(at_b, Phase.RoundTrain)
        assert state.phase_start >= 400


async def test_many_messages_at_once_are_all_answered(url: str) -> None:
    identities = [Identity(bytes([number]) * 32) for number in range(1, 13)]
    create(url, min_clients=99, max_clients=100)
    async with connected(url, *identities) as clients:
        pairs = list(zip(identities, clients, strict=True))
        answers = await asyncio.gather(*(at.submit(join(who)) for who, at in pairs for _ in "12"))
        assert answers == [None] * 24
        async with asyncio.timeout(60):
            async for state in clients[0].watch():
                if len(state.pending) == 12:
                    break
        assert clients[0].place is not None
        assert clients[0].place.version < 24  # letters that wait together are taken together


async def test_a_run_that_is_not_there_is_said_to_be_created(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("folkmoot.authority.store.worker.COMING", 0.1)
    async with connected(url, A) as (authority,):
        with pytest.raises(Denied, match=r"no run 'moot'.*folkmoot create"):
            await anext(authority.watch())
        with pytest.raises(Denied, match="no run 'moot'"):
            await authority.submit(join(A))


async def test_a_key_that_is_not_on_the_list_sees_and_says_nothing(url: str) -> None:
    create(url, Access(frozenset({A.public}), frozenset({OWNER.public})))
    async with connected(url, STRANGER, A) as (stranger, known):
        with pytest.raises(Denied, match="allow-list"):
            await stranger.submit(join(STRANGER))
        with pytest.raises(Denied, match="allow-list"):
            await anext(stranger.watch())
        assert await known.submit(join(A)) is None


async def test_nobody_speaks_for_another_and_only_an_owner_pauses(url: str) -> None:
    create(url)
    async with connected(url, A, OWNER) as (authority, owner):
        with pytest.raises(Denied, match="another sender"):
            await authority.submit(join(B))
        with pytest.raises(Denied, match="only an owner"):
            await authority.submit(m.Pause())
        assert await owner.submit(m.Pause()) is None
        await until(authority, Phase.Paused)


async def test_a_store_that_is_not_there_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("folkmoot.authority.store.client.SUBMIT_TIMEOUT", 1.0)
    async with connected("tcp://127.0.0.1:9", A) as (authority,):
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"):
            await authority.submit(join(A))


async def test_garbage_in_every_key_stops_nobody(url: str) -> None:
    create(url, min_clients=9)
    vandal = open_store(url, "moot")
    async with connected(url, A, B) as (at_a, at_b):
        assert await at_a.submit(join(A)) is None
        watch = at_b.watch()
        await anext(watch)
        for key in (keys.RECORD, keys.CLAIMED, keys.ready(2), keys.ready(3), keys.letter(3)):
            vandal.set(key, b"garbage")
        assert await at_b.submit(join(B)) is None
        vandal.delete(keys.RECORD)
        assert await at_a.submit(m.HealthCheck(A.public)) is None
        assert at_a.place is not None
        assert {p.id for p in at_a.place.state.pending} == {A.public, B.public}
    vandal.close()


async def test_an_authority_is_opened_by_its_url(url: str) -> None:
    create(url)
    authority = open_authority(f"store:{url}", "moot", A)
    try:
        assert (await anext(authority.watch())).run == run()
    finally:
        await authority.close()
    with pytest.raises(ValueError, match="names no store"):
        open_authority("store:somewhere", "moot", A)


class Hurried(StoreAuthority):
    """Its letters are answered before it knows that they were sent."""

    def _send(self, message: m.AnyEvent) -> tuple[int, "asyncio.Future[m.Refused | None]"]:
        slot, answer = super()._send(message)
        answered = threading.Event()
        self._call(answer.add_done_callback, lambda _: answered.set())
        assert answered.wait(60)
        return slot, answer


async def test_an_answer_that_came_at_once_is_not_the_answer_to_the_next_letter() -> None:
    url = f"memory://{secrets.token_hex(8)}"
    create(url)
    owner = Hurried(url, "moot", OWNER)
    try:
        assert await owner.submit(m.Pause()) is None
        assert await owner.submit(m.Pause()) == m.refusal(m.Reason.AlreadyPausing)
    finally:
        await owner.close()
