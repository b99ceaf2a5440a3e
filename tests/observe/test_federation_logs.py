"""A small federation as the logs of its two sides tell it."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from folkmoot.federated import Settings, take_part
from folkmoot.federated.coordinator import events as coordinator
from folkmoot.federated.participant import events
from folkmoot.federated.participant.connection import Connection
from folkmoot.host.event_log import LogReader, Unknown
from folkmoot.observe.logs import open_log
from support.federation import AGREES, PlusOne, running_federation


class Breaks(PlusOne):
    def train_round(self, weights: np.ndarray, epochs: int, epoch_base: int) -> tuple:
        raise ZeroDivisionError("in the owner's code")


def records(log: LogReader) -> list[msgspec.Struct]:
    found = [entry.record for entry in log.new()]
    assert not [record for record in found if isinstance(record, Unknown)]
    assert log.damaged == 0
    return found


def settings(w: Any, log: Path) -> Settings:
    return Settings(
        address=w.server.address, run_id="test", policy=AGREES, longest_pause=0.2, log=str(log)
    )


async def test_both_sides_tell_the_same_rounds(tmp_path: Path) -> None:
    log = tmp_path / "participant.jsonl"
    async with running_federation(tmp_path) as w:
        await take_part(PlusOne(2, 7), settings(w, log))
        rounds = range(w.state.round)
    told = records(open_log(log, "participant"))
    assert [r.round for r in told if isinstance(r, events.RoundTrained)] == [*rounds]
    assert [r.round for r in told if isinstance(r, events.UpdateDelivered)] == [*rounds]
    assert isinstance(told[0], events.Began)
    assert told[-1] == events.Ended("the federation has finished")
    kept = records(open_log(tmp_path / "state" / "events.jsonl", "coordinator"))
    assert [r.round for r in kept if isinstance(r, coordinator.Aggregated)] == [*rounds]
    assert isinstance(kept[-1], coordinator.Stopped)


async def test_a_participant_that_ends_says_why(tmp_path: Path) -> None:
    log = tmp_path / "participant.jsonl"
    async with running_federation(tmp_path) as w:
        with pytest.raises(ZeroDivisionError):
            await take_part(Breaks(), settings(w, log))
    assert records(open_log(log, "participant"))[-1] == events.Ended("in the owner's code")


async def test_a_new_session_is_told_of(tmp_path: Path) -> None:
    class Forgetful(Connection):
        """Loses its session before the first update."""

        lost = False

        async def call(self, method: str, request: Any, limit: float = 30.0) -> Any:
            if method == "EndTrainingRound" and not self.lost:
                self.lost, self.session = True, b"another coordinator's"
            return await super().call(method, request, limit)

    log = tmp_path / "participant.jsonl"
    async with running_federation(tmp_path) as w:
        await take_part(PlusOne(2, 7), settings(w, log), Forgetful)
    told = records(open_log(log, "participant"))
    assert any(isinstance(record, events.Reconnected) for record in told)
    assert told[-1] == events.Ended("the federation has finished")
