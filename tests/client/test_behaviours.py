"""What the run promises, each by its name: real server, real peers, a tiny model."""

from pathlib import Path

from client.moot import agreement, moot
from folkmoot.client import events
from folkmoot.core.coordinator import messages as m


async def test_a_run_ends_with_one_model_and_a_checkpoint(tmp_path: Path) -> None:
    async with moot(tmp_path, checkpoint=str(tmp_path / "kept")) as run:
        members = await run.join(3)
        await run.until(run.finished)
        assert run.state.progress.step == 6
        last = max(agreement(members).items())[1]
        assert last == run.state.model_hash.hex()
        assert run.all(m.RoundJudged)
        assert not any(e.owed for e in run.all(m.RoundJudged))
        assert not any(member.all(events.MessageRefused) for member in members)
