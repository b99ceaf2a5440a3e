"""A round over a line: a call brings its model, and its update goes ahead of any answer."""

import asyncio
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from folkmoot.federated import wire
from folkmoot.federated.participant import participation
from folkmoot.federated.participant.bucket import WeightsUnavailable
from folkmoot.federated.participant.loop import Settings, take_part
from folkmoot.federated.participant.policy import NotAgreed
from folkmoot.federated.transfer import frames
from folkmoot.federated.transfer.lines import Life, Line
from folkmoot.federated.transfer.transfers import Telling
from folkmoot.host.signing import Identity
from support.federation import (
    RUN,
    ManualParticipant,
    PlusOne,
    RunningFederation,
    carried,
    running_federation,
)

PATIENCE = 60.0


def beat(**seen: Any) -> Any:
    asked = {"state": wire.STATE["READY"], "round": -1, "want_task": True, **seen}
    return wire.HeartbeatRequest(**asked)


async def in_round_1(w: RunningFederation, **limits: Any) -> tuple[ManualParticipant, Any]:
    """A participant whose first weights are round 1's model: four ones."""
    a, weights = await w.introduced("a", **limits)
    ones = {"weights": np.ones(4, np.float32)}
    await a.end(await asyncio.to_thread(weights.write_update, 0, "", ones))
    await w.coordinator.until(lambda state: state.round == 1)
    return a, weights


async def test_a_call_to_a_round_brings_its_model(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path)) as w:
        _, weights = await in_round_1(w)
        w.server.service._grant_fetch = None  # nobody asks for it
        answer = await asyncio.to_thread(weights.call, beat(), PATIENCE)
        assert (answer.round, answer.expected) == (1, True)
        read = (weights.read_global, 1, answer.task.global_digest)
        model = await asyncio.to_thread(*read)
        assert list(model["weights"]) == [1.0] * 4


async def test_rounds_need_no_request_but_calls_and_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Beside a round that lasts longer, a heartbeat goes over gRPC, and may hear of the next one.
    monkeypatch.setattr(participation, "SHORT_ROUND", PATIENCE)
    short = carried(tmp_path, rounds=6, heartbeat_time=4 * PATIENCE)
    async with running_federation(tmp_path, short) as w:
        service, fetched, held = w.server.service, [], Counter[str]()
        fetch, hold = service._grant_fetch, service._grant_held
        service._grant_fetch = lambda request: (fetched.append(request.round), fetch(request))[1]

        async def counted(method: str, *more: Any) -> Any:
            held[method] += 1
            return await hold(method, *more)

        service._grant_held = counted
        await take_part(PlusOne(1000), Settings(address=w.server.address, run_id=RUN))
        await w.server.finished()
        assert set(fetched) <= {1}, "before there is a line, a round is heard of over gRPC"
        assert held["EndTrainingRound"] >= 5
        assert held["Heartbeat"] <= 1, "what was delivered is answered with the next call"
        assert next(iter(await w.global_of(6))) == 5.0


async def test_who_hangs_up_while_its_call_is_held_is_not_heard_any_more(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path, min_participants=2)) as w:
        (a,) = await w.join("a")
        held, gone = w.held_and_gone()
        call = a.signed("Heartbeat", beat(wait_ms=600_000))
        line = socket.create_connection(("127.0.0.1", w.server.service.weights_port))
        line.sendall(frames.encode_frame(wire.TransferRequest(call=call)))
        await asyncio.wait_for(held.wait(), PATIENCE)
        line.close()
        await asyncio.wait_for(gone.wait(), PATIENCE)


async def test_a_held_call_gives_way_to_weights(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path, rounds=3)) as w:
        a, weights = await in_round_1(w)
        held, _ = w.held_and_gone()
        seen = beat(wait_ms=600_000, seen_state=1, seen_round=1, seen_expected=True)
        call = asyncio.create_task(asyncio.to_thread(weights.call, seen, PATIENCE))
        await asyncio.wait_for(held.wait(), PATIENCE)
        update = {"weights": np.zeros(4, np.float32)}
        digest = await asyncio.to_thread(weights.write_update, 1, "", update)
        assert await asyncio.wait_for(call, PATIENCE) is None
        await a.end(digest, 1)
        assert list(await w.global_of(2)) == [0.0] * 4


async def test_a_model_larger_than_agreed_does_not_come_with_a_call(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path)) as w:
        _, weights = await in_round_1(w, max_object=50)
        answer = await asyncio.to_thread(weights.call, beat(), PATIENCE)
        with pytest.raises(WeightsUnavailable, match="announced with"):
            await asyncio.to_thread(weights.read_global, 1, answer.task.global_digest)


async def test_who_is_told_of_the_end_over_a_line_has_heard_it_when_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator leaves when all have heard it, and takes its lines along."""
    heard_before, carry = [], Telling.carry
    async with running_federation(tmp_path, carried(tmp_path, rounds=1)) as w:
        a, weights = await w.introduced("a")
        ones = {"weights": np.ones(4, np.float32)}
        await a.end(await asyncio.to_thread(weights.write_update, 0, "", ones))
        await w.server.finished()

        def watched(telling: Telling, line: Line) -> Life:
            heard_before.append(w.server.service.all_told.is_set())
            yield from carry(telling, line)

        monkeypatch.setattr(Telling, "carry", watched)
        answer = await asyncio.to_thread(weights.call, beat(), PATIENCE)
        assert wire.STATE_NAME[answer.state] == "FINISHED"
        await asyncio.wait_for(w.server.service.all_told.wait(), PATIENCE)
        assert heard_before == [False]


async def test_a_call_that_another_key_answers_is_not_believed(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path)) as w:
        _, weights = await in_round_1(w)
        w.coordinator.identity = Identity.random()
        with pytest.raises(NotAgreed, match="shows the key"):
            await asyncio.to_thread(weights.call, beat(), PATIENCE)


async def test_a_model_that_is_not_the_one_announced_is_not_used(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path)) as w:
        _, weights = await in_round_1(w)
        await asyncio.to_thread(weights.call, beat(), PATIENCE)
        with pytest.raises(WeightsUnavailable, match="not the model"):
            await asyncio.to_thread(weights.read_global, 1, bytes(32))


async def test_an_update_that_is_refused_in_the_midst_of_it_is_known_to_be(tmp_path: Path) -> None:
    """It is on its way before anybody said that it may come."""
    async with running_federation(tmp_path, carried(tmp_path, min_participants=2)) as w:
        _, weights = await w.introduced("a")
        large = {"w": np.zeros(8_000_000, np.float32)}
        with pytest.raises(wire.RequestRefused, match="FAILED_PRECONDITION"):
            await asyncio.to_thread(weights.write_update, 0, "", large)
