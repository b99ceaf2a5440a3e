"""What the owner changes while members are there, they change too, and keep the model they have."""

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from authority.any_run import until_kept
from folkmoot.client import events
from folkmoot.client.places import ALL
from folkmoot.core.coordinator import Phase
from folkmoot.core.coordinator import messages as m
from folkmoot.core.method_config import DenseConfig
from folkmoot.core.schedule import Constant
from folkmoot.observe.logs import read_log
from folkmoot.runs.control import extend_run, pause_run, resume_run, update_run
from folkmoot.runs.join import join_run
from folkmoot.runs.serve import serve_run
from support.small_run import compile_kernels, make_run


def told(folder: Path, kind: type[Any], log: str = "client") -> list[Any]:
    """The events of a kind in the log of a process."""
    records = (entry.record for entry in read_log(folder / "events.jsonl", log))
    return [record for record in records if isinstance(record, kind)]


async def test_members_go_on_with_another_learning_rate_and_the_model_they_hold(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path, total_steps=1000, rounds_per_epoch=1000)
    compile_kernels(run.model.method)
    async with serve_run(run, tmp_path / "server") as server, asyncio.TaskGroup() as group:
        where = (server.address, run.run_id)
        for name in ("ana", "bob"):
            group.create_task(join_run(*where, tmp_path / name, trust=(ALL,)))
        await until_kept(server.listening.keeper, Phase.RoundTrain, 2)
        await pause_run(*where, server.owner_key)
        paused = await until_kept(server.listening.keeper, Phase.Paused)
        config = replace(run.config, total_steps=paused.progress.step + 2)
        changed = replace(run, config=config, model=replace(run.model, lr=Constant(base_lr=5e-3)))
        await update_run(server.address, changed, server.owner_key)
        await resume_run(*where, server.owner_key)
        await until_kept(server.listening.keeper, Phase.Finished)
    assert server.state.progress.step == paused.progress.step + 2
    assert not told(tmp_path / "server", m.Rewound, "server")
    for name in ("ana", "bob"):
        (again,) = told(tmp_path / name, events.RunChanged)
        assert "model.lr.base_lr: 0.01 -> 0.005" in again.changes
        loaded = told(tmp_path / name, events.ModelLoaded)
        assert [event.source for event in loaded] == ["seed", "own"]
        learnt = told(tmp_path / name, events.RoundLearnt)
        assert learnt[-1].hash == server.state.model_hash.hex()


async def test_a_finished_run_that_is_extended_goes_on_with_whoever_comes(tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    run = make_run(tmp_path, total_steps=1, delay=0, method=DenseConfig(), checkpoint=kept)
    async with serve_run(run, tmp_path / "server") as server:
        where = (server.address, run.run_id)
        for steps in (1, 2):
            if steps > 1:
                state = await extend_run(*where, steps, server.owner_key)
                assert state.phase in (Phase.WaitingForMembers, Phase.Warmup)
            async with asyncio.TaskGroup() as group:
                for name in ("ana", "bob"):
                    group.create_task(join_run(*where, tmp_path / name, trust=(ALL,)))
            assert server.state.phase is Phase.Finished
            assert server.state.progress.step == steps
    loaded = told(tmp_path / "ana", events.ModelLoaded)
    assert [event.source for event in loaded] == ["seed", "storage"]
    # Nobody waited for who was there before the end: all that was trained was learnt.
    judged = told(tmp_path / "server", m.RoundJudged, "server")
    assert [event.owed for event in judged] == [0, 0]
