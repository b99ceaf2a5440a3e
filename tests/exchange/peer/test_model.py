"""A joiner gets the model from its peers, and only the one that was agreed on."""

import os

import pytest
from blake3 import blake3

from folkmoot.core.content import PIECE
from folkmoot.exchange.peer import (
    ModelManifest,
    Parameter,
    Peer,
    SharedModel,
    StoreFull,
    WrongModel,
    fetch_model,
)
from support.peers import members

TENSORS = {f"layer.{n}": os.urandom(n * 150_000 + 3) for n in range(8)}
SIZES = {name: len(data) for name, data in TENSORS.items()}


def leaf(name: str, data: bytes) -> bytes:
    return blake3(name.encode() + data).digest()


def root(leaves: dict[str, bytes]) -> bytes:
    return blake3(b"".join(leaves[name] for name in sorted(leaves))).digest()


LEAVES = {name: leaf(name, data) for name, data in TENSORS.items()}
MODEL = root(LEAVES)


def agreed(manifest: ModelManifest) -> bool:
    return root(manifest.leaf_hashes()) == MODEL


def check(name: str, data: bytes) -> bool:
    return leaf(name, data) == LEAVES[name]


def share(peer: Peer, tensors: dict[str, bytes] = TENSORS) -> SharedModel:
    return SharedModel(peer, MODEL, [(name, LEAVES[name], tensors[name]) for name in tensors])


async def fetch(joiner: Peer, providers: list[Peer]) -> dict[str, bytes]:
    ids = [provider.id for provider in providers]
    return await fetch_model(joiner, MODEL, ids, SIZES, agreed, check)


async def test_a_joiner_gets_every_parameter_from_several_peers() -> None:
    async with members(4) as (joiner, *providers):
        for provider in providers:
            share(provider)
        assert await fetch(joiner, providers) == TENSORS
        traffic = joiner.traffic()
        assert all(traffic[provider.id].received > PIECE for provider in providers)


async def test_a_peer_that_serves_a_wrong_parameter_is_set_aside() -> None:
    """Its manifest promises the agreed leaves and names other content."""
    async with members(3) as (joiner, *providers):
        liar, honest = providers
        share(liar, TENSORS | {"layer.5": bytes(SIZES["layer.5"])})
        share(honest)
        for _ in range(3):  # whichever manifest it looks at first
            assert await fetch(joiner, providers) == TENSORS


async def test_a_manifest_that_does_not_make_the_agreed_hash_costs_nothing() -> None:
    async with members(2) as (joiner, liar):
        other = Parameter("layer.1", bytes(32), liar.put(bytes(100)))
        shared = share(liar)
        parameters = [other if p.name == other.name else p for p in shared.manifest.parameters]
        for lie in (
            ModelManifest(MODEL, tuple(parameters)),
            ModelManifest(MODEL, shared.manifest.parameters[1:]),
            ModelManifest(MODEL, (*shared.manifest.parameters, shared.manifest.parameters[0])),
            ModelManifest(bytes(32), shared.manifest.parameters),
        ):
            shared.manifest = lie
            with pytest.raises(WrongModel):
                await fetch(joiner, [liar])
        assert joiner.traffic()[liar.id].received < 100_000


async def test_a_peer_without_the_model_says_which_it_has() -> None:
    async with members(3) as (joiner, behind, silent):
        SharedModel(behind, bytes(32), [])
        with pytest.raises(WrongModel, match="the model here is 00000000…") as raised:
            await fetch(joiner, [behind, silent])
        assert "no such method" in str(raised.value)


async def test_a_model_that_is_no_longer_shared_leaves_nothing_behind() -> None:
    async with members(2) as (joiner, provider):
        shared = share(provider)
        shared.stop()
        assert provider.store.used == 0
        with pytest.raises(WrongModel, match="no such method"):
            await fetch(joiner, [provider])


async def test_a_model_that_does_not_fit_is_not_half_shared() -> None:
    async with members(1, store_bytes=1_000_000) as (provider,):
        with pytest.raises(StoreFull):
            share(provider)
        assert provider.store.used == 0
