"""Rounds over the network while members are killed, leave and join: one model.

The first eighty here; all two hundred with the fault runs.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from folkmoot.client.learner import Learner
from folkmoot.core.coordinator import messages as m
from support.small_run import SmallRun, StartRun, agreement

ROUNDS, FIRST = 200, 80
# At which step a member is killed, leaves, or a new one comes: the last in time for the last epoch.
CHURN = {
    20: "join", 35: "kill", 50: "join", 70: "leave", 85: "join", 105: "kill", 120: "join",
    140: "leave", 150: "join", 165: "kill", 170: "join",
}  # fmt: skip


class Recording(Learner):
    """Notes what every model was made from: the results in their order, by the model's hash."""

    learnt: dict[str, tuple[tuple[bytes, ...], int, tuple[int, ...]]] = {}  # noqa: RUF012

    def learn(self, payloads: Sequence[bytes], step: int, samples: Sequence[int] = ()) -> bytes:
        made = super().learn(payloads, step, samples)
        self.learnt[made.hex()] = (tuple(payloads), step, tuple(samples))
        return made


async def churn(run: SmallRun, rounds: int) -> None:
    for step, what in CHURN.items():
        if step >= rounds:
            return
        await run.until(lambda step=step: run.state.progress.step >= step)
        eldest = next(a for a in run.members if a.task is not None)
        if what == "join":
            await run.join(learner=Recording)
        elif what == "kill":
            await eldest.end()
        else:
            await eldest.leave()


async def test_every_model_is_the_same_in_every_round_of_a_long_run_with_churn(
    tmp_path: Path, small_run: StartRun
) -> None:
    await play(tmp_path, small_run, FIRST)


@pytest.mark.faults
async def test_every_model_is_the_same_in_two_hundred_rounds_on_every_authority(
    tmp_path: Path, small_run: StartRun
) -> None:
    await play(tmp_path, small_run, ROUNDS)


async def play(folder: Path, small_run: StartRun, rounds: int) -> None:
    config = {"total_steps": rounds, "rounds_per_epoch": 20, "min_clients": 2}
    changes = [what for step, what in CHURN.items() if step < rounds]
    async with small_run(folder, max_round_train_time=3, init_min_clients=3, **config) as run:
        await run.join(3, learner=Recording)
        await churn(run, rounds)
        await run.until(run.finished)
        agreed = agreement(run.members)
        assert not run.all(m.Rewound)
        assert run.state.progress.step == rounds
        assert len(agreed) >= rounds - 2 * len(changes)
        assert len(run.members) == 3 + changes.count("join")
        assert all(who.hashes() for who in run.members)
    replayed = Learner(run.run)
    for where in sorted(agreed):
        assert replayed.learn(*Recording.learnt[agreed[where]]).hex() == agreed[where], where
    assert replayed.hash() == run.state.model_hash
