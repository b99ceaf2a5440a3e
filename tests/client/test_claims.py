"""The server reads a checkpoint before it counts. Real members, a real store."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from folkmoot.authority.server.claims import CannotRead, ClaimPolicy
from folkmoot.authority.server.events import ClaimRefused, ClaimTrusted, ClaimVerified
from folkmoot.client import events
from folkmoot.client.learner import Learner
from folkmoot.client.models import Models
from folkmoot.core.coordinator import Run, create
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.exchange.bucket import Bucket
from folkmoot.learning.checkpoints.fetch import fetch
from folkmoot.learning.checkpoints.save import save
from folkmoot.runs.stored_checkpoint import check_stored
from support import small_run as small_runs
from support.servers import S3Server
from support.small_run import PATIENCE, RunMember, SmallRun, make_run, small_run

Lie = Callable[[Models, Any], None]
Store = Callable[..., Awaitable[str | None]]
# Two of six store the model.
SIX = {"min_clients": 6, "total_steps": 2, "rounds_per_epoch": 2, "global_batch_size_start": 6}


def nothing(models: Models, action: Any) -> None:
    """Store nothing at all."""


def half(models: Models, action: Any) -> None:
    """Store all of it, and lose the end of the largest file."""
    store, name = stored(models, action)
    whole = store.get(f"{name}/model.safetensors", 1 << 20)
    store.put(f"{name}/model.safetensors", whole[:-64])


def unfinished(models: Models, action: Any) -> None:
    """Die before the manifest."""
    store, name = stored(models, action)
    store.delete(f"{name}/manifest.json")


def stored(models: Models, action: Any) -> tuple[Bucket, str]:
    location = models._store(models.learner.save, action.step, lambda: False)
    return Bucket(models.learner.run.model.checkpoint), location.rpartition("/")[2]


def another_model(models: Models, action: Any) -> None:
    """Store a model that nobody agreed on, in perfect order."""
    other = Learner(models.learner.run)
    save(Bucket(other.run.model.checkpoint), action.step, other.model, state={})


def stores(how: Store) -> Callable[[RunMember], None]:
    """Has members store as `how` does, which is given their models and the honest way as well."""

    def prepare(who: RunMember) -> None:
        models: Models = who.member.models
        models.store = partial(how, models, models.store)  # type: ignore[method-assign]

    return prepare


def first_lies(run: SmallRun, lie: Lie) -> Callable[[RunMember], None]:
    """The first checkpointer lies; the other begins when it was found out."""
    liars: list[Models] = []

    async def store(models: Models, honest: Store, action: Any, *how: Any) -> str | None:
        if liars:
            await run.until(lambda: run.claims)
            return await honest(action, *how)
        liars.append(models)
        lie(models, action)
        return f"{run.run.model.checkpoint}/step-{action.step:08d}"

    return stores(store)


def refused_claims(members: list[RunMember]) -> list[str]:
    """Why; a slow member may be refused something else, which was too late."""
    told = [e for a in members for e in a.all(events.MessageRefused)]
    return [e.reason for e in told if e.message == "OpportunisticCooldown"]


async def is_found_out(folder: Path, root: str, lie: Lie, why: str, **how: Any) -> None:
    """One checkpointer lies, and is refused; the other's checkpoint counts, and is sound."""
    async with small_run(folder, checkpoint=root, **SIX) as run:
        members = await run.join(6, prepare=first_lies(run, lie), **how)
        await run.until(run.finished)
        liar, true = run.claims[0].sender, run.claims[-1]
        # Who was not answered in time, by a busy machine, says it again and is judged again.
        assert all(
            why in told.why if told.sender == liar else isinstance(told, ClaimVerified)
            for told in run.claims
        ), run.claims
        assert true.sender != liar
        assert "WrongModel" in refused_claims(members)
        assert [e.location for e in run.all(m.CheckpointStored)] == [true.location]
        found = how.get("learner", Learner)(run.run)
        name = true.location.rpartition("/")[2]
        found.restore(fetch(Bucket(root), name, folder / "fetched"))
        assert found.hash() == run.state.model_hash


LIES = [
    (nothing, "has no manifest"),
    (half, "bytes where its manifest says"),
    (unfinished, "has no manifest"),
    (another_model, "another hash"),
]


@pytest.mark.parametrize(("lie", "why"), LIES)
async def test_a_false_claim_is_refused_and_the_others_go_on(
    tmp_path: Path, lie: Lie, why: str
) -> None:
    (tmp_path / "kept").mkdir()
    await is_found_out(tmp_path, str(tmp_path / "kept"), lie, why)


@pytest.mark.parametrize(("lie", "why"), [LIES[0], LIES[1], LIES[3]])
async def test_a_false_claim_on_s3_is_refused_and_the_others_go_on(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, lie: Lie, why: str
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    await is_found_out(tmp_path, s3_server.new_bucket(), lie, why)


async def test_a_true_claim_that_comes_after_another_is_no_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").mkdir()
    asked, both, late = list[bytes](), asyncio.Event(), asyncio.Event()

    async def check(state: Any, claim: Any, stopped: Callable[[], bool]) -> str | None:
        """The second one is read when the first was believed."""
        asked.append(claim.sender)
        if len(asked) == 1:
            await both.wait()
            return await check_stored(state, claim, stopped)
        both.set()
        await run.until(stopped)
        try:
            return await check_stored(state, claim, stopped)
        finally:
            late.set()

    monkeypatch.setattr(small_runs, "check_stored", check)
    async with small_run(tmp_path, checkpoint=str(tmp_path / "kept"), **SIX) as run:
        await run.join(6)
        await asyncio.wait_for(late.wait(), PATIENCE)
        assert [type(told) for told in run.claims] == [ClaimVerified]


@pytest.mark.parametrize(
    ("policy", "spelt"),
    [(ClaimPolicy.auto, "{}/"), (ClaimPolicy.auto, "{}x"), (ClaimPolicy.never, "{root}//{name}")],
)
async def test_no_other_spelling_of_a_place_is_kept(
    tmp_path: Path, policy: ClaimPolicy, spelt: str
) -> None:
    """The liar's checkpoint is sound; only what it says of it cannot be loaded by anyone."""
    (tmp_path / "kept").mkdir()
    root, liars = str(tmp_path / "kept"), list[Models]()
    async with small_run(tmp_path, policy=policy, checkpoint=root, **SIX) as run:

        async def store(models: Models, honest: Store, *how: Any) -> str | None:
            if liars:
                await run.until(lambda: refused_claims(members))
                return await honest(*how)
            liars.append(models)
            true = await honest(*how)
            assert true is not None
            return spelt.format(true, root=root, name=true.rpartition("/")[2])

        members = await run.join(6, prepare=stores(store))
        await run.until(run.finished)
        (refused,) = refused_claims(members)
        assert refused in ("WrongLocation", "WrongModel")
        kept = run.state.checkpoint.location
        found = Learner(run.run)
        found.restore(fetch(Bucket(root), kept.rpartition("/")[2], tmp_path / "fetched"))
        assert found.hash() == run.state.model_hash
        assert kept == f"{root}/step-00000002"


async def test_s3_that_does_not_let_the_server_in_cannot_be_read(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**s3_server.environment, "AWS_SECRET_ACCESS_KEY": "wrong"}.items():
        monkeypatch.setenv(name, value)
    root = s3_server.new_bucket()
    model = Model(checkpoint=root)
    state = create(Run(run_id="moot", config=CoordinatorConfig(total_steps=1), model=model), 0)
    claim = m.OpportunisticCooldown(bytes(32), 0, f"{root}/step-00000000", bytes(32))
    with pytest.raises(CannotRead, match="denied"):
        await check_stored(state, claim, lambda: False)


class Buffered(Learner):
    """Its model has state that is no parameter, and is stored."""

    def initialise(self) -> None:
        super().initialise()
        self.model.register_buffer("scale", torch.arange(3.0))


def another_buffer(models: Models, action: Any) -> None:
    """Store the agreed parameters, beside a buffer that nobody agreed on."""
    other = Buffered(models.learner.run)
    other.adopt({name: data for name, _, data in models.learner.shared_parts()})
    other.model.scale += 1
    other.save(Bucket(other.run.model.checkpoint), action.step, lambda: False)


async def test_buffers_are_verified_like_parameters(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    kept = str(tmp_path / "kept")
    await is_found_out(tmp_path, kept, another_buffer, "another hash", learner=Buffered)


def _bump(model: torch.nn.Module) -> None:
    model.scale += 1


class Drifting(Buffered):
    """Counts in a buffer how often it was trained, as batch norm does."""

    def initialise(self) -> None:
        super().initialise()
        self.model.register_forward_pre_hook(lambda model, given: _bump(model))


def test_a_model_whose_buffers_change_in_training_is_refused_before_it_joins(
    tmp_path: Path,
) -> None:
    Buffered(make_run(tmp_path)).rehearse()
    with pytest.raises(ValueError, match="scale changes while a share is trained"):
        Drifting(make_run(tmp_path)).rehearse()


@pytest.mark.parametrize("policy", [ClaimPolicy.auto, ClaimPolicy.always])
async def test_a_server_that_cannot_read_the_store_believes_or_refuses_as_it_was_told(
    tmp_path: Path, policy: ClaimPolicy
) -> None:
    kept = tmp_path / "kept"
    cooldown = 200.0 if policy is ClaimPolicy.auto else 3.0  # what is refused is waited for in vain
    steps = {"total_steps": 2, "rounds_per_epoch": 2, "cooldown_time": cooldown}
    async with small_run(tmp_path, policy=policy, checkpoint=str(kept), **steps) as run:

        async def store_out_of_sight(models: Models, honest: Store, *how: Any) -> str | None:
            location = await honest(*how)
            shutil.rmtree(kept)
            return location

        await run.join(2, prepare=stores(store_out_of_sight))
        await run.until(run.finished)
        (claim,) = run.claims
        assert isinstance(claim, ClaimTrusted if policy is ClaimPolicy.auto else ClaimRefused)
        assert "on the server's machine" in claim.why
        assert len(run.all(m.CheckpointStored)) == (policy is ClaimPolicy.auto)
