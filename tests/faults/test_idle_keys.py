"""Strangers that do nothing come to an open run, and the run goes on."""

from pathlib import Path

import pytest

from faults.idle_keys import idle_keys
from faults.live import live

STRANGERS = 12


@pytest.mark.faults
def test_twelve_idle_keys_do_not_crowd_out_three_clients(tmp_path: Path) -> None:
    with live(tmp_path, clients=3, steps=50, rounds=10) as run:
        run.until(lambda: run.step() >= 2, "training")
        with idle_keys(STRANGERS, run.address, "hurt") as strangers:
            run.until(
                lambda: len(run.all("server", "ClientJoined")) >= 3 + STRANGERS, "all of them"
            )
            run.until(lambda: run.phase == "Finished", "the last step")
        run.finish()
        epochs = run.all("server", "EpochStarted")[1:]
        assert len(epochs) >= 3
        assert max(e.clients for e in epochs) == 4, "one newcomer beside three who have worked"
        assert {e.id for e in run.all("server", "ClientRemoved")} <= strangers
        # Nobody waited for a quorum in vain: what was given out was learnt, but for shares that
        # a stranger was given.
        judged = run.all("server", "RoundJudged")
        assert sum(e.attested for e in judged) > 0.9 * sum(e.attested + e.owed for e in judged)
