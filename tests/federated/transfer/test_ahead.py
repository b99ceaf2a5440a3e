"""The next model is sent to who waits for it while the disk gets it, and then it counts."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from folkmoot.federated import wire
from folkmoot.federated.model_file.hashing_writer import HashingWriter
from folkmoot.federated.participant import carried as participant_side
from folkmoot.federated.participant.carried import CarriedWeights
from folkmoot.federated.transfer.listener import Asked
from folkmoot.federated.transfer.transfers import SendingAhead
from support.federation import RunningFederation, carried, running_federation

PATIENCE = 60.0
SIZE = 300_000


class Waiting(NamedTuple):
    """`call` is held open on `line`; what `other` delivers ends it."""

    w: RunningFederation
    line: CarriedWeights
    call: asyncio.Task[Any]
    other: CarriedWeights


def weights(value: float) -> dict[str, np.ndarray]:
    return {"weights": np.full(SIZE, value, np.float32)}


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE)


async def deliver(line: CarriedWeights, value: float, round_: int = 1) -> None:
    end = wire.EndTrainingRoundRequest(round=round_, number_samples=round_)
    assert await asyncio.to_thread(line.deliver, weights(value), end)


def waiting_in_1() -> Any:
    return wire.HeartbeatRequest(
        state=wire.STATE["READY"],
        round=1,
        want_task=True,
        wait_ms=600_000,
        seen_state=wire.STATE["ROUND"],
        seen_round=1,
    )


@asynccontextmanager
async def one_waits_for_the_other(
    folder: Path, rounds: int = 3, show_next: Callable[..., None] | None = None
) -> AsyncIterator[Waiting]:
    """Round 1 lacks the update of one, and the other one's call is held open."""
    config = carried(folder, rounds=rounds, min_participants=2)
    async with running_federation(folder, config) as w:
        w.coordinator.show_next = show_next or w.coordinator.show_next
        (_, line), (_, other) = await w.introduced("a"), await w.introduced("b")
        for each in (line, other):
            await deliver(each, 0.0, 0)
        await w.coordinator.until(lambda state: state.round == 1)
        held, _ = w.held_and_gone()
        await deliver(line, 1.0)
        call = asyncio.create_task(asyncio.to_thread(line.call, waiting_in_1(), PATIENCE))
        await asyncio.wait_for(held.wait(), PATIENCE)
        yield Waiting(w, line, call, other)


class LateCommit(NamedTuple):
    """The disk gets the model of round 2 when it is `released`; `came` is set when it came."""

    came: threading.Event
    released: threading.Event


@pytest.fixture
def late_commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[LateCommit]:
    late = LateCommit(threading.Event(), threading.Event())
    commit, take = HashingWriter.commit, participant_side._Fetching.take

    def commit_late(writer: HashingWriter, **how: Any) -> None:
        if writer.path.parent.name == "2":
            assert late.released.wait(PATIENCE)
        commit(writer, **how)

    def noted(fetching: Any, *arguments: Any) -> None:
        take(fetching, *arguments)
        late.came.set()

    monkeypatch.setattr(HashingWriter, "commit", commit_late)
    monkeypatch.setattr(participant_side._Fetching, "take", noted)
    yield late
    late.released.set()


async def model_of_2(line: CarriedWeights, call: asyncio.Task[Any]) -> set[float]:
    answer = await asyncio.wait_for(call, PATIENCE)
    assert answer.task.round == 2
    model = await asyncio.to_thread(line.read_global, 2, answer.task.global_digest)
    return set(model["weights"].tolist())


def show_instead(w: RunningFederation, shown: Callable[[HashingWriter], SendingAhead]) -> None:
    """Give those who are called next something else than the model."""
    service = w.server.service

    def show(round_: int, ids: tuple[str, ...], model: HashingWriter) -> None:
        for id in ids:
            if call := service._calls.get(id):
                call.send_ahead(shown(model))

    w.coordinator.show_next = show


async def test_the_next_model_comes_while_the_disk_gets_it(
    tmp_path: Path, late_commit: LateCommit
) -> None:
    async with one_waits_for_the_other(tmp_path) as (w, line, call, other):
        await deliver(other, 3.0)
        await until(late_commit.came)
        assert w.state.round == 1, "nobody was called to it yet"
        assert not call.done()
        late_commit.released.set()
        w.server.service._grant_fetch = None  # nobody asks for it
        assert await model_of_2(line, call) == {2.0}


async def test_a_model_that_is_not_the_next_one_is_dropped(tmp_path: Path) -> None:
    def another(model: HashingWriter) -> SendingAhead:
        (tmp_path / "another").write_bytes(b"not this one")
        return SendingAhead((tmp_path / "another").open("rb", buffering=0), "ab" * 32)

    async with one_waits_for_the_other(tmp_path) as (w, line, call, other):
        show_instead(w, another)
        await deliver(other, 3.0)
        w.server.service._grant_fetch = None  # the right one came with the call
        assert await model_of_2(line, call) == {2.0}


async def test_bytes_of_another_digest_than_was_said_are_asked_for_again(tmp_path: Path) -> None:
    def damaged(model: HashingWriter) -> SendingAhead:
        with model.open_unnamed() as file:
            body = bytearray(file.read())
        body[-1] ^= 1
        (tmp_path / "damaged").write_bytes(body)
        return SendingAhead((tmp_path / "damaged").open("rb", buffering=0), model.digest().hex())

    async with one_waits_for_the_other(tmp_path) as (w, line, call, other):
        show_instead(w, damaged)
        await deliver(other, 3.0)
        assert await model_of_2(line, call) == {2.0}


async def test_a_model_ahead_that_is_larger_than_agreed_is_not_read(tmp_path: Path) -> None:
    async with one_waits_for_the_other(tmp_path) as (_, line, call, other):
        line._max_object = 50
        await deliver(other, 3.0)
        assert await asyncio.wait_for(call, PATIENCE) is None, "it is said over gRPC"


async def test_nobody_is_shown_a_model_that_nobody_is_called_to(tmp_path: Path) -> None:
    shown: list[tuple[str, ...]] = []

    def noted(round_: int, ids: tuple[str, ...], model: HashingWriter) -> None:
        shown.append(ids)

    async with one_waits_for_the_other(tmp_path, 2, noted) as (_, _, call, other):
        await deliver(other, 3.0)
        answer = await asyncio.wait_for(call, PATIENCE)
        assert wire.STATE_NAME[answer.state] == "FINISHED"
        assert shown == [()]


async def test_what_nobody_waits_for_is_closed(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"model")
    files = [(tmp_path / "model").open("rb", buffering=0) for _ in range(3)]
    before, during, again = (SendingAhead(file, "ab") for file in files)

    async def never(request: Any, asked: Asked) -> Any:
        await asyncio.Event().wait()

    asked = Asked(asyncio.get_running_loop(), never, None, lambda: None)
    asked.send_ahead(during)
    asked.send_ahead(again)
    assert [file.closed for file in files] == [False, False, True], "one for a request"
    asked.close()
    asked.send_ahead(before)
    assert [file.closed for file in files] == [True, True, True]


async def test_who_calls_while_the_disk_gets_the_model_is_sent_it_too(
    tmp_path: Path, late_commit: LateCommit
) -> None:
    async with one_waits_for_the_other(tmp_path) as (w, line, call, other):
        await deliver(other, 3.0)
        await until(late_commit.came)
        late_commit.came.clear()
        late = asyncio.create_task(asyncio.to_thread(other.call, waiting_in_1(), PATIENCE))
        await until(late_commit.came)
        assert w.state.round == 1
        late_commit.released.set()
        w.server.service._grant_fetch = None  # nobody asks for it
        assert await model_of_2(line, call) == {2.0}
        assert await model_of_2(other, late) == {2.0}
