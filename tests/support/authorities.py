"""Who keeps the state of a run under test. Another authority is one more class, named below."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import ClassVar, Protocol, Self

import pytest
from solders.pubkey import Pubkey

from folkmoot.authority import Authority
from folkmoot.authority.access import Access
from folkmoot.authority.open import open_authority
from folkmoot.authority.server import client as server_client
from folkmoot.authority.server.claims import Claims
from folkmoot.authority.server.serve import Listening, listen
from folkmoot.authority.solana import client as solana_client
from folkmoot.authority.solana import post
from folkmoot.authority.solana.account import read, state_of
from folkmoot.authority.solana.create import RunOwner
from folkmoot.authority.solana.effects import effects_between
from folkmoot.authority.solana.instructions import PROGRAM_ID, coordinator_address
from folkmoot.authority.solana.localnet.serve import Localnet, serving
from folkmoot.authority.solana.place import Place
from folkmoot.authority.store import client as store_client
from folkmoot.authority.store.client import StoreAuthority
from folkmoot.authority.store.create import create_run
from folkmoot.authority.store.kv.open import open_store
from folkmoot.authority.store.kv.tcp_server import listen as listen_tcp
from folkmoot.core.coordinator import Coordinator, Run
from folkmoot.core.machine import Effect
from folkmoot.host.signing import Identity

OWNER = Identity(b"o" * 32)
OnEffect = Callable[[Effect, int], None]


@contextmanager
def patient() -> Iterator[None]:
    """Clients and who keeps the run share one process: on a busy machine it is late for itself."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (server_client, store_client, solana_client):
            patch.setattr(module, "SUBMIT_TIMEOUT", 120.0)
        patch.setattr(post, "TIMEOUT", 60.0)
        yield


class RunKeeper(Protocol):
    """A run whose state is kept while the test goes on."""

    @classmethod
    def keep(
        cls, run: Run, folder: Path, on_effect: OnEffect, claims: Claims
    ) -> AbstractAsyncContextManager[Self]: ...

    @property
    def state(self) -> Coordinator: ...

    def open(self, identity: Identity) -> Authority:
        """The authority as a member uses it."""
        ...


class ServerKeeper:
    """A server on loopback."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening

    @classmethod
    @asynccontextmanager
    async def keep(
        cls, run: Run, folder: Path, on_effect: OnEffect, claims: Claims
    ) -> AsyncIterator[Self]:
        journal, access = folder / "run.journal", Access(owners=frozenset({OWNER.public}))
        with patient():
            async with listen(
                run, journal, "127.0.0.1:0", access, listener=on_effect, claims=claims
            ) as listening:
                yield cls(listening)

    @property
    def state(self) -> Coordinator:
        return self._listening.keeper.state

    def open(self, identity: Identity) -> Authority:
        url = f"server://127.0.0.1:{self._listening.port}"
        return open_authority(url, self.state.run.run_id, identity)


class StoreKeeper:
    """A store that holds the run, here a TCPStore, and somebody who follows it."""

    def __init__(self, url: str, run_id: str, follower: StoreAuthority) -> None:
        self._url, self._run_id, self._follower = url, run_id, follower

    @classmethod
    @asynccontextmanager
    async def keep(
        cls, run: Run, folder: Path, on_effect: OnEffect, claims: Claims
    ) -> AsyncIterator[Self]:
        with patient(), cls.store(folder) as url:
            store = open_store(url, run.run_id)
            create_run(store, run, Access(owners=frozenset({OWNER.public})), OWNER)
            store.close()
            follower = StoreAuthority(url, run.run_id, Identity.random(), on_effect)
            try:
                await anext(follower.watch())
                yield cls(url, run.run_id, follower)
            finally:
                await follower.close()

    @classmethod
    @contextmanager
    def store(cls, folder: Path) -> Iterator[str]:
        server, url = listen_tcp("127.0.0.1", 0)
        yield url
        del server

    @property
    def state(self) -> Coordinator:
        assert self._follower.place is not None
        return self._follower.place.state

    def open(self, identity: Identity) -> Authority:
        return open_authority(f"store:{self._url}", self._run_id, identity)


class EtcdKeeper(StoreKeeper):
    """The same in an etcd that the tests of a session share."""

    url: ClassVar[str]

    @classmethod
    @contextmanager
    def store(cls, folder: Path) -> Iterator[str]:
        yield cls.url


class SolanaKeeper:
    """A localnet with the program, whose account is looked at after every transaction."""

    def __init__(self, net: Localnet, run: Run, on_effect: OnEffect) -> None:
        self._url, self._run_id = f"solana:{run.run_id}@{net.url}", run.run_id
        self._ledger, self._on_effect = net.ledger, on_effect
        self._address = coordinator_address(PROGRAM_ID, run.run_id)
        self.state: Coordinator = self._newest()
        told, net.ledger.changed = net.ledger.changed, self._changed
        self._told = told

    @classmethod
    @asynccontextmanager
    async def keep(
        cls, run: Run, folder: Path, on_effect: OnEffect, claims: Claims
    ) -> AsyncIterator[Self]:
        with patient():
            async with serving(slot_seconds=0.1) as net:
                owner = RunOwner(Place(run.run_id, (net.url,), PROGRAM_ID), OWNER)
                await owner.create(run, True, 0, OWNER.public)
                yield cls(net, run, on_effect)

    def _newest(self) -> Coordinator:
        found = self._ledger.account(self._address)
        assert found is not None
        return state_of(read(bytes(found.data)))

    def _changed(self, key: Pubkey) -> None:
        if key == self._address:
            before, self.state = self.state, self._newest()
            now = self._ledger.svm.get_clock().unix_timestamp * 1000
            for effect in effects_between(before, self.state, now):
                self._on_effect(effect, now)
        self._told(key)

    def open(self, identity: Identity) -> Authority:
        return open_authority(self._url, self._run_id, identity)


AUTHORITIES: dict[str, type[RunKeeper]] = {
    "server": ServerKeeper,
    "TCPStore": StoreKeeper,
    "etcd": EtcdKeeper,
    "Solana": SolanaKeeper,
}
# On a chain every message takes a slot or more, and an etcd holds a run as a TCPStore does
# (authority/test_every_authority.py has all four): whole runs there are for `make faults`.
SLOW = ("Solana", "etcd")
PARAMS = [
    pytest.param(name, marks=[pytest.mark.faults] if name in SLOW else []) for name in AUTHORITIES
]
WITH_ALL_RULES = [param for param in PARAMS if "Solana" not in param.values]
"""Those that leave none out; what the program does, `authority/solana/subset.py` says."""
