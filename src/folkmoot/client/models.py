"""Where a client's model comes from, who gets it from us, and where it is kept.

A model comes from peers, from storage or from the run's seed, and counts only when its hash is the
agreed one. Peers need a moment to be there and some never are: they are asked until one gives it,
and when storage keeps the very same model it is taken from there after a while. A stored model
counts only when it was read back and passed every check.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from folkmoot.client import events
from folkmoot.client.learner import Learner, ModelCopy
from folkmoot.client.places import ANYWHERE, NotTrusted, Places
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.state import CheckpointSource
from folkmoot.exchange.bucket import Bucket, BucketError, HubRepository, open_checkpoints
from folkmoot.exchange.peer import (
    FetchFailed,
    ModelManifest,
    Peer,
    SharedModel,
    StoreFull,
    WrongModel,
    fetch_model,
)
from folkmoot.host.event_log import Record
from folkmoot.host.threads import in_daemon_thread
from folkmoot.learning.checkpoints.fetch import fetch
from folkmoot.learning.checkpoints.leaf_hash import root_hash
from folkmoot.learning.checkpoints.manifest import CheckpointError, NotWanted
from folkmoot.learning.checkpoints.save import prune

# How long to wait for connections before asking those that are there, and between attempts.
CONNECT_TIME, AGAIN = 2.0, 0.25
# How long peers are asked before storage is, if it keeps the same model.
PATIENCE = 10.0

Work = Callable[..., Awaitable[Any]]
Stopping = Callable[[], bool]
Write = Callable[[Bucket | HubRepository, int, Stopping], str]


class Models:
    """The model of one client, on its way in and out. `work` runs things on the learner."""

    def __init__(
        self,
        peer: Peer,
        learner: Learner,
        folder: Path,
        work: Work,
        emit: Callable[[Record], None],
        places: Places = ANYWHERE,
        holds: bool = False,
    ) -> None:
        self.peer, self.learner, self.folder = peer, learner, folder
        self._places = places
        self._work, self._emit = work, emit
        self._holds = holds  # whether there was a model of the run here before
        self._shared: SharedModel | None = None

    # In.

    async def load(self, action: c.Load) -> bytes | None:
        """The hash of the model that is now in memory, or None when it cannot be had."""
        began = time.perf_counter()
        try:
            source = await self._get(action)
            model_hash: bytes = await self._work(self.learner.hash)
            if action.model_hash and model_hash != action.model_hash:
                raise WrongModel(f"The model from {source} is not the one that was agreed on.")
        except (WrongModel, BucketError, CheckpointError, NotTrusted, OSError) as error:
            self._emit(events.ModelNotLoaded(action.epoch, str(error)))
            return None
        self._holds = True
        seconds = time.perf_counter() - began
        self._emit(events.ModelLoaded(action.epoch, source, model_hash.hex(), seconds))
        return model_hash

    async def _get(self, action: c.Load) -> str:
        if self._holds and await self._work(self.learner.hash) == action.model_hash:
            return "own"
        if action.checkpoint.source is CheckpointSource.P2P:
            return await self._from_peers(action)
        if action.checkpoint.source is CheckpointSource.Stored:
            return await self._from_storage(action.checkpoint.location)
        await self._work(self.learner.initialise)
        return "seed"

    async def _from_peers(self, action: c.Load) -> str:
        kept = action.checkpoint.location and action.checkpoint.model_hash == action.model_hash
        giving_up = time.monotonic() + PATIENCE
        while True:
            try:
                await self._fetch(action)
            except (FetchFailed, WrongModel) as error:
                self._emit(events.Peers("no model", str(error)))
            else:
                return "peers"
            if kept and time.monotonic() > giving_up:
                return await self._from_storage(action.checkpoint.location)
            await asyncio.sleep(AGAIN)

    async def _fetch(self, action: c.Load) -> None:
        leaves: dict[str, bytes] = {}

        def agreed(manifest: ModelManifest) -> bool:
            leaves.clear()
            leaves.update(manifest.leaf_hashes())
            return root_hash(leaves) == action.model_hash

        holders = [holder for holder in action.holders if holder != self.peer.id]
        await self.peer.connected(holders, CONNECT_TIME)
        parts = await fetch_model(
            self.peer,
            action.model_hash,
            holders,
            self.learner.part_sizes(),
            agreed,
            lambda name, data: self.learner.fits(name, data, leaves),
        )
        await self._work(self.learner.adopt, parts)

    async def _from_storage(self, location: str) -> str:
        root, _, name = location.rpartition("/")
        if not name or name.startswith("."):
            raise CheckpointError(f"{location} is not the place of a checkpoint")
        await self._work(self.learner.restore, await in_daemon_thread(self._read_back, root, name))
        return "storage"

    def _read_back(self, root: str, name: str) -> Path:
        return fetch(self._open(root), name, self.folder / "checkpoints")

    def _open(self, root: str) -> Bucket | HubRepository:
        return open_checkpoints(self._places.ours(root))

    # Out.

    async def share(self, model_hash: bytes) -> None:
        """Let peers have a copy of the model as it is now."""
        parts = await self._work(self.learner.shared_parts)
        self.unshare()
        try:
            self._shared = SharedModel(self.peer, model_hash, parts)
        except StoreFull as error:
            self._emit(events.Peers("store full", str(error)))

    def unshare(self) -> None:
        if self._shared is not None:
            self._shared.stop()
            self._shared = None

    def copy(self) -> Awaitable[ModelCopy]:
        """Of the model as it is now: made before anything that is asked of the learner later."""
        return asyncio.ensure_future(self._work(self.learner.copy))

    async def store(self, action: c.Upload, stopped: Stopping) -> str | None:
        """Where the model is stored now, read back and checked; None when it is not."""
        return await self._keep(action, self.learner.save, stopped)

    async def store_copy(
        self, action: c.Save, stopped: Stopping, copying: Awaitable[ModelCopy]
    ) -> str | None:
        """As `store`, while the model goes on."""
        write = partial(self.learner.save_copy, await copying)
        return await self._keep(action, write, stopped)

    async def _keep(self, action: c.Upload | c.Save, write: Write, stopped: Stopping) -> str | None:
        began = time.perf_counter()
        try:
            location: str = await in_daemon_thread(self._store, write, action.step, stopped)
        except NotWanted:
            return None
        except (BucketError, CheckpointError, OSError) as error:
            self._emit(events.CheckpointFailed(action.epoch, str(error)))
            return None
        seconds = time.perf_counter() - began
        self._emit(events.CheckpointStored(action.epoch, location, seconds))
        return location

    async def prune(self, epoch: int, agreed: str) -> None:
        """Remove old checkpoints; `agreed` is where the run's last one was before ours."""
        model, (root, _, newest) = self.learner.run.model, agreed.rpartition("/")
        if not model.keep_checkpoints or root != model.checkpoint.rstrip("/"):
            return
        store = self._open(root)
        try:
            removed = await in_daemon_thread(prune, store, model.keep_checkpoints, newest)
        except (BucketError, OSError) as error:
            self._emit(events.CheckpointFailed(epoch, f"old ones could not be removed: {error}"))
        else:
            self._emit(events.CheckpointsRemoved(epoch, tuple(removed)))

    def _store(self, write: Write, step: int, stopped: Stopping) -> str:
        root = self.learner.run.model.checkpoint
        name = write(self._open(root), step, stopped)
        self._read_back(root, name)
        return f"{root.rstrip('/')}/{name}"
