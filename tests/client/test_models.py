"""A model counts only when it is the agreed one, whole and in every part, from wherever."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from folkmoot.client import events, models
from folkmoot.client.learner import Learner
from folkmoot.client.models import Models
from folkmoot.client.places import ANYWHERE, Places
from folkmoot.core.coordinator.assignment import Span
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.state import Checkpoint, CheckpointSource
from folkmoot.exchange.bucket import Bucket
from folkmoot.exchange.peer import Peer, SharedModel
from support.peers import members
from support.small_run import make_run


class Joiner:
    """Loads models and keeps what was said. Another has the `agreed` model, and has stored it."""

    def __init__(self, folder: Path, peer: Peer, places: Places = ANYWHERE) -> None:
        run = make_run(folder, delay=0)
        self.peer, self.said = peer, list[msgspec.Struct]()
        self.other = Learner(run)
        worked = self.other.train(0, (Span(0, 4),), lambda: False)
        self.agreed = self.other.learn([worked.payload], 0)
        name = self.other.save(Bucket(str(folder / "kept")), 1, lambda: False)
        self.stored = f"{folder / 'kept'}/{name}"
        self.models = Models(peer, Learner(run), folder, self._work, self.said.append, places)

    async def _work(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    async def load(self, source: CheckpointSource, wanted: bytes, *holders: bytes) -> bytes | None:
        checkpoint = Checkpoint(source, self.stored, self.agreed)
        return await self.models.load(c.Load(0, checkpoint, wanted, holders))

    def sources(self) -> list[str]:
        return [event.source for event in self.said if isinstance(event, events.ModelLoaded)]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Joiner, Peer]]:
    async with members(2) as (here, there):
        yield Joiner(tmp_path, here), there


@pytest.mark.parametrize("source", [CheckpointSource.Stored, CheckpointSource.Ephemeral])
async def test_a_model_with_another_hash_is_not_taken(
    pair: tuple[Joiner, Peer], source: CheckpointSource
) -> None:
    joiner, _ = pair
    assert await joiner.load(source, bytes(32)) is None
    (refused,) = joiner.said
    assert isinstance(refused, events.ModelNotLoaded)
    assert "not the one that was agreed on" in refused.reason
    assert await joiner.load(CheckpointSource.Stored, joiner.agreed) == joiner.agreed
    assert joiner.sources() == ["storage"]


async def test_no_model_is_read_where_its_owner_did_not_agree_to(tmp_path: Path) -> None:
    """Of where the last checkpoint is, a client hears from its run alone, at any time."""
    async with members(1) as (peer,):
        for places, sources in ((Places(), []), (Places([str(tmp_path)]), ["storage"])):
            joiner = Joiner(tmp_path, peer, places)
            loaded = await joiner.load(CheckpointSource.Stored, joiner.agreed)
            assert (loaded == joiner.agreed) is bool(sources)
            assert joiner.sources() == sources
            refused = [e.reason for e in joiner.said if isinstance(e, events.ModelNotLoaded)]
            assert ["did not agree to" in why for why in refused] == [True] * (not sources)


async def test_a_hidden_place_is_not_one_of_a_checkpoint(pair: tuple[Joiner, Peer]) -> None:
    joiner, _ = pair
    for name in ("..", ".ssh", ""):
        joiner.stored = f"{joiner.stored.rpartition('/')[0]}/{name}"
        assert await joiner.load(CheckpointSource.Stored, joiner.agreed) is None
        refused = joiner.said.pop()
        assert isinstance(refused, events.ModelNotLoaded)
        assert "is not the place of a checkpoint" in refused.reason


def wrong_part(liar: Peer, joiner: Joiner) -> None:
    """Promises the agreed leaves; one bit of what it serves is another."""
    (name, leaf, data), *others = joiner.other.shared_parts()
    flipped = bytes([data[0] ^ 1]) + data[1:]
    SharedModel(liar, joiner.agreed, [(name, leaf, flipped), *others])


def wrong_whole(liar: Peer, joiner: Joiner) -> None:
    """Another model under the agreed hash, sound in itself."""
    SharedModel(liar, joiner.agreed, joiner.models.learner.shared_parts())


@pytest.mark.parametrize("lie", [wrong_part, wrong_whole])
async def test_what_is_not_agreed_on_never_enters_the_model(
    pair: tuple[Joiner, Peer],
    lie: Callable[[Peer, Joiner], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lie costs one attempt, and not the load: storage keeps the same model."""
    monkeypatch.setattr(models, "PATIENCE", 0.0)
    joiner, liar = pair
    lie(liar, joiner)
    assert await joiner.load(CheckpointSource.P2P, joiner.agreed, liar.id) == joiner.agreed
    assert joiner.sources() == ["storage"]
    assert not [event for event in joiner.said if isinstance(event, events.ModelNotLoaded)]


async def test_the_agreed_model_is_taken_from_a_peer(pair: tuple[Joiner, Peer]) -> None:
    joiner, honest = pair
    SharedModel(honest, joiner.agreed, joiner.other.shared_parts())
    assert await joiner.load(CheckpointSource.P2P, joiner.agreed, honest.id) == joiner.agreed
    assert joiner.sources() == ["peers"]


def test_a_part_fits_only_under_its_name_with_every_bit(tmp_path: Path) -> None:
    learner = Learner(make_run(tmp_path))
    leaves = learner.leaf_hashes()
    for name, _, data in learner.shared_parts():
        assert learner.fits(name, data, leaves)
        assert not learner.fits(name, bytes([data[0] ^ 1]) + data[1:], leaves)
        assert not learner.fits(name, data[:-1] + bytes([data[-1] ^ 128]), leaves)
        assert not learner.fits(name, data[:-4], leaves)
        assert not learner.fits("unknown", data, leaves)
        assert not learner.fits(name, data, {})
