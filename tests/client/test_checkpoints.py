"""The model is stored in the midst of an epoch: nobody waits for it, and a run goes back to it."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from folkmoot.client import events
from folkmoot.client.learner import Learner, ModelCopy
from folkmoot.core.coordinator import messages as m
from folkmoot.learning.checkpoints.manifest import NotWanted
from support.authorities import WITH_ALL_RULES
from support.small_run import StartRun, agreement


@pytest.mark.parametrize("small_run", WITH_ALL_RULES, indirect=True)
async def test_a_model_is_stored_while_training_goes_on_and_a_run_goes_back_to_it(
    tmp_path: Path, small_run: StartRun
) -> None:
    may_store = threading.Event()

    class StoresLater(Learner):
        """Its store is slow; what it stores must be the model as it was."""

        def save_copy(
            self, copy: ModelCopy, store: Any, step: int, stopped: Callable[[], bool]
        ) -> str:
            while not may_store.wait(0.02):
                if stopped():
                    raise NotWanted
            return super().save_copy(copy, store, step, stopped)

    # However long it takes to store, the epoch is not over by then.
    often = {"checkpoint_steps": 2, "rounds_per_epoch": 10**4, "total_steps": 10**4}
    kept = str(tmp_path / "kept")
    async with small_run(tmp_path, checkpoint=kept, **often) as run:
        members = await run.join(3, learner=StoresLater)
        await run.until(lambda: run.all(m.CheckpointWanted))
        begun = run.state.progress.step
        await run.until(lambda: run.state.progress.step >= begun + 3)
        assert not run.all(m.CheckpointStored), "training went on while it was being stored"
        may_store.set()
        await run.until(lambda: run.all(m.CheckpointStored))
        agreement(members)
        await asyncio.gather(*(who.leave() for who in members))
        await run.until(lambda: run.all(m.Rewound))
        stored = run.all(m.CheckpointStored)[-1]
        assert stored.step >= 2
        assert [e.to_step for e in run.all(m.Rewound)] == [stored.step]
        again = await run.join(2)
        await run.until(lambda: all(who.sources() for who in again))
        await run.end_after(3)
        assert {who.sources()[0] for who in again} == {"storage"}
        agreement(again)
        assert not [e for who in members for e in who.all(events.CheckpointFailed)]
