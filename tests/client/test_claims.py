"""The server reads a checkpoint before it counts. Real members, a real store."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client.moot import Attendant, Moot, moot
from folkmoot.authority.server.claims import ClaimRefused, ClaimTrusted, ClaimVerified, Policy
from folkmoot.client import events
from folkmoot.client.learner import Learner
from folkmoot.client.models import Models
from folkmoot.core.coordinator import messages as m
from folkmoot.exchange.bucket import Bucket
from folkmoot.learning import checkpoint

Lie = Callable[[Models, Any], None]
# Two of six store the model.
SIX = {"min_clients": 6, "total_steps": 2, "rounds_per_epoch": 2, "global_batch_size_start": 6}


def nothing(models: Models, action: Any) -> None:
    """Store nothing at all."""


def half(models: Models, action: Any) -> None:
    """Store all of it, and lose the end of the largest file."""
    folder = Path(models._store(action.step, lambda: False))
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(file.seek(0, 2) - 64)


def unfinished(models: Models, action: Any) -> None:
    """Die before the manifest."""
    folder = Path(models._store(action.step, lambda: False))
    (folder / "manifest.json").unlink()


def another_model(models: Models, action: Any) -> None:
    """Store a model that nobody agreed on, in perfect order."""
    other = Learner(models.learner.run)
    checkpoint.save(Bucket(other.run.model.checkpoint), action.step, other.model, state={})


def first_lies(run: Moot, lie: Lie) -> Callable[[Attendant], None]:
    """The first checkpointer lies; the other begins when it was found out."""
    liars: list[bytes] = []

    def prepare(attendant: Attendant) -> None:
        models: Models = attendant.member.models
        honest = models.store

        async def store(action: Any, stopped: Callable[[], bool]) -> str | None:
            if liars:
                await run.until(lambda: run.claims)
                return await honest(action, stopped)
            liars.append(attendant.id)
            lie(models, action)
            return f"{run.run.model.checkpoint}/step-{action.step:08d}"

        models.store = store  # type: ignore[method-assign]

    return prepare


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (nothing, "has no manifest"),
        (half, "bytes where its manifest says"),
        (unfinished, "has no manifest"),
        (another_model, "another hash"),
    ],
)
async def test_a_false_claim_is_refused_and_the_others_go_on(
    tmp_path: Path, lie: Lie, why: str
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    async with moot(tmp_path, checkpoint=str(kept), **SIX) as run:
        members = await run.join(6, prepare=first_lies(run, lie))
        await run.until(run.finished)
        false, true = run.claims
        assert isinstance(false, ClaimRefused)
        assert why in false.why
        assert isinstance(true, ClaimVerified)
        assert true.sender != false.sender
        refused = [e for a in members for e in a.all(events.MessageRefused)]
        assert [e.reason for e in refused] == ["WrongModel"]
        assert [e.location for e in run.all(m.CheckpointStored)] == [true.location]
        stored = Learner(run.run)
        stored.restore(Path(true.location))
        assert stored.hash() == run.state.model_hash


def out_of_sight(run: Moot, kept: Path) -> Callable[[Attendant], None]:
    """Everybody stores honestly, where the server cannot see it."""

    def prepare(attendant: Attendant) -> None:
        models: Models = attendant.member.models
        honest = models.store

        async def store(action: Any, stopped: Callable[[], bool]) -> str | None:
            location = await honest(action, stopped)
            shutil.rmtree(kept)
            return location

        models.store = store  # type: ignore[method-assign]

    return prepare


@pytest.mark.parametrize("policy", [Policy.auto, Policy.always])
async def test_a_server_that_cannot_read_the_store_believes_or_refuses_as_it_was_told(
    tmp_path: Path, policy: Policy
) -> None:
    kept = tmp_path / "kept"
    steps = {"total_steps": 2, "rounds_per_epoch": 2, "cooldown_time": 3.0}
    async with moot(tmp_path, policy=policy, checkpoint=str(kept), **steps) as run:
        await run.join(2, prepare=out_of_sight(run, kept))
        await run.until(run.finished)
        (claim,) = run.claims
        assert isinstance(claim, ClaimTrusted if policy is Policy.auto else ClaimRefused)
        assert "on the server's machine" in claim.why
        assert len(run.all(m.CheckpointStored)) == (policy is Policy.auto)
