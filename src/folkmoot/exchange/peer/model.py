"""Hand a model to joiners: every parameter is content, and a manifest says which.

A joiner asks all providers for their manifest. One counts only when its leaves make the model hash
that a quorum agreed on (`agreed`, told by the caller before anything is fetched), and a parameter
only when its bytes make its leaf (`check`). Parameters come from many providers at once. A
manifest that promises the right leaves and names the wrong content is found out at its first
parameter: its providers are set aside, what was right stays, and the next manifest is used for the
rest.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from folkmoot.exchange.peer.blob_store import StoreFull
from folkmoot.exchange.peer.fetch import FetchFailed
from folkmoot.exchange.peer.peer import Peer
from folkmoot.exchange.peer.rpc import CallRefused, NoAnswer, RpcMethod
from folkmoot.exchange.peer.wire import Key

SIDE_BY_SIDE = 8
"""Parameters under way at once."""
MODEL_SECONDS = 600.0
"""For a whole model to come."""


class Parameter(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`content` is what to fetch; `leaf` its hash in the model's hash."""

    name: Annotated[str, msgspec.Meta(max_length=256)]
    leaf: Key
    content: Key


Parameters = Annotated[tuple[Parameter, ...], msgspec.Meta(max_length=1 << 17)]


class ModelManifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The parameters of the model whose hash is `model`."""

    model: Key
    parameters: Parameters

    def leaf_hashes(self) -> dict[str, bytes]:
        return {p.name: p.leaf for p in self.parameters}


GET_MANIFEST = RpcMethod("manifest", bytes, ModelManifest)
"""Ask for the manifest of the model with this hash."""


class WrongModel(Exception):
    """No provider's parameters make the agreed model; the message says what each did."""


class SharedModel:
    """A model that members may fetch from us, until `stop`."""

    def __init__(
        self,
        peer: Peer,
        model: bytes,
        parameters: Iterable[tuple[str, bytes, bytes | memoryview]],
    ) -> None:
        """Of these (name, leaf, bytes). The bytes are not copied: they must not change.

        Raises StoreFull, and then keeps nothing.
        """
        self._peer = peer
        listed = []
        try:
            for name, leaf, data in parameters:
                listed.append(Parameter(name, leaf, peer.put(data)))
        except StoreFull:
            self._drop(listed)
            raise
        self.manifest = ModelManifest(model, tuple(listed))
        peer.answer(GET_MANIFEST, self._answer)

    async def _answer(self, asker: bytes, model: bytes) -> ModelManifest:
        if model != self.manifest.model:
            raise CallRefused(f"the model here is {self.manifest.model[:4].hex()}…")
        return self.manifest

    def stop(self) -> None:
        """Share it no longer."""
        self._peer.mute(GET_MANIFEST)
        self._drop(self.manifest.parameters)

    def _drop(self, parameters: Iterable[Parameter]) -> None:
        for parameter in parameters:
            self._peer.drop(parameter.content)


async def fetch_model(
    peer: Peer,
    model: bytes,
    providers: Sequence[bytes],
    sizes: Mapping[str, int],
    agreed: Callable[[ModelManifest], bool],
    check: Callable[[str, bytes], bool],
) -> dict[str, bytes]:
    """The parameters by name, of the `sizes` in bytes they must have, each checked.

    Raises WrongModel, or FetchFailed when time is up.
    """
    fetching = _Fetching(peer, model, sizes, agreed, check)
    try:
        async with asyncio.timeout(MODEL_SECONDS):
            await fetching.run(providers)
    except TimeoutError as error:
        raise FetchFailed(f"The model was not complete within {MODEL_SECONDS:g} s.") from error
    return fetching.got


@dataclass
class _Fetching:
    """One model on its way in."""

    peer: Peer
    model: bytes
    sizes: Mapping[str, int]
    agreed: Callable[[ModelManifest], bool]
    check: Callable[[str, bytes], bool]
    got: dict[str, bytes] = field(default_factory=dict)
    said: dict[bytes, str] = field(default_factory=dict)

    async def run(self, providers: Sequence[bytes]) -> None:
        offers = await self._manifests(providers)
        while offers:
            # The manifest that most providers have in common is the likeliest to be right.
            manifest = max(offers, key=lambda m: len(offers[m]))
            holders = offers.pop(manifest)
            if await self._bring(manifest, holders):
                return
        told = "; ".join(f"{peer[:4].hex()}: {what}" for peer, what in self.said.items())
        raise WrongModel(
            f"No peer gave the model {self.model[:4].hex()}… ({told or 'nobody to ask'})."
        )

    async def _manifests(self, providers: Sequence[bytes]) -> dict[ModelManifest, list[bytes]]:
        """The manifests that make the agreed hash, and who has them."""
        answers = await asyncio.gather(*(self._manifest(p) for p in providers))
        offers: dict[ModelManifest, list[bytes]] = {}
        for provider, manifest in zip(providers, answers, strict=True):
            if manifest is not None:
                offers.setdefault(manifest, []).append(provider)
        for manifest in list(offers):
            if not self._makes_the_model(manifest):
                for provider in offers.pop(manifest):
                    self.said[provider] = "its manifest does not make the agreed model"
        return offers

    def _makes_the_model(self, manifest: ModelManifest) -> bool:
        names = [parameter.name for parameter in manifest.parameters]
        complete = sorted(names) == sorted(self.sizes)
        return manifest.model == self.model and complete and self.agreed(manifest)

    async def _manifest(self, provider: bytes) -> ModelManifest | None:
        try:
            stall = self.peer.config.stall
            return await self.peer.ask(provider, GET_MANIFEST, self.model, seconds=stall)
        except (CallRefused, NoAnswer) as error:
            self.said[provider] = str(error)
            return None

    async def _bring(self, manifest: ModelManifest, holders: list[bytes]) -> bool:
        """All parameters still missing; False when this manifest is of no use."""
        todo = [p for p in manifest.parameters if p.name not in self.got]
        # Large ones first, so that the end is not one long wait.
        todo.sort(key=lambda p: -self.sizes[p.name])

        async def worker() -> None:
            while todo:
                await self._one(todo.pop(0), holders)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(SIDE_BY_SIDE, len(todo))):
                    group.create_task(worker())
        except* (FetchFailed, WrongModel) as errors:
            for holder in holders:
                self.said[holder] = str(errors.exceptions[0])
        return self.got.keys() >= self.sizes.keys()

    async def _one(self, parameter: Parameter, holders: list[bytes]) -> None:
        size = self.sizes[parameter.name]
        patience = 4 * self.peer.config.stall
        data = await self.peer.get(parameter.content, holders, size, seconds=patience)
        if len(data) != size or not self.check(parameter.name, data):
            self.peer.drop(parameter.content)
            raise WrongModel(f"its {parameter.name} is not the agreed one")
        self.got[parameter.name] = data
