"""Nobody learns from liars: clients of the project's own parts that send well-formed nonsense."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from folkmoot.client.learner import Learner, Worked
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import Share
from folkmoot.learning.methods.distro import wire
from support.authorities import WITH_ALL_RULES
from support.small_run import StartRun, agreement

FOUR = {
    "min_clients": 2,
    "init_min_clients": 4,
    "total_steps": 14,
    "rounds_per_epoch": 30,
    "global_batch_size_start": 16,
    "screening": True,
    # Else a witness that waits for a processor counts as silent.
    "round_witness_time": 20.0,
}


class Liar(Learner):
    """Trains, and sends what `lie` makes of it."""

    def train(self, step: int, share: Share, stopped: Callable[[], bool]) -> Worked:
        worked = super().train(step, share, stopped)
        index, value = wire.unpack(self.method.plan, worked.payload)
        return worked._replace(payload=wire.pack(self.method.plan, *self.lie(index, value, step)))

    def lie(self, index: np.ndarray, value: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError


class Opposite(Liar):
    def lie(self, index, value, step):
        return index, -value


class Random(Liar):
    def lie(self, index, value, step):
        draw = np.random.default_rng(step)
        return _places(self.method.plan, draw), draw.choice([-1.0, 1.0], value.shape)


def _places(plan, draw):
    """Some k coefficients of every chunk, ascending."""
    return np.concatenate(
        [
            np.sort(
                draw.permuted(np.tile(np.arange(g.size), (g.count, 1)), axis=1)[:, : g.k]
            ).ravel()
            for g in plan.groups
        ]
    ).astype(np.int32)


@pytest.mark.parametrize("small_run", WITH_ALL_RULES, indirect=True)
@pytest.mark.parametrize("liar", [Opposite, Random])
async def test_a_client_that_sends_nonsense_is_not_learnt_from_and_ejected(
    tmp_path: Path, small_run: StartRun, liar: type[Liar]
) -> None:
    async with small_run(tmp_path, **FOUR) as run:
        others = await run.join(3)
        (lies,) = await run.join(learner=liar)
        await run.until(run.finished)
        assert run.removed() == [(lies.id, "Ejected")]
        assert sum(e.screened for e in run.all(m.RoundJudged)) >= 4
        assert run.state.progress.step == 14
        agreement(others)


class Accuser(Learner):
    """Trains well, and says of every result it audits that it was not trained as assigned."""

    def audit(self, payload: bytes, others: Sequence[bytes], samples: Share) -> bool | None:
        super().audit(payload, others, samples)
        return False


@pytest.mark.parametrize("small_run", WITH_ALL_RULES, indirect=True)
async def test_an_auditor_that_alone_accuses_everybody_is_ejected(
    tmp_path: Path, small_run: StartRun
) -> None:
    audited = FOUR | {"screening": False, "verification_percent": 100, "total_steps": 30}
    async with small_run(tmp_path, **audited | {"rounds_per_epoch": 50}) as run:
        others = await run.join(3)
        (accuses,) = await run.join(learner=Accuser)
        await run.until(run.finished)
        assert run.removed() == [(accuses.id, "FailedAudits")]
        assert run.state.progress.step == 30
        verdicts = run.all(m.ResultsAudited)
        assert sum(e.passed for e in verdicts) > 2 * sum(e.failed for e in verdicts)
        agreement(others)
