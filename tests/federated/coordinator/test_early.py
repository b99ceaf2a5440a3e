"""A sum that begins while updates still come: the same bits, or nothing of it."""

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from blake3 import blake3
from msgspec.structs import replace

from folkmoot.core.federation import messages as m
from folkmoot.core.federation.state import Delivery
from folkmoot.exchange.bucket import Bucket
from folkmoot.exchange.bucket.reading import Reading
from folkmoot.federated import wire
from folkmoot.federated.coordinator import early
from folkmoot.federated.coordinator.config import SecurityConfig
from folkmoot.federated.model_file.layout import encode_header, layout_of
from folkmoot.federated.model_file.reader import digest_of
from folkmoot.federated.names import CARRIED
from folkmoot.federated.participant.bucket import ParticipantBucket
from folkmoot.federated.participant.carried import CarriedWeights
from folkmoot.federated.transfer import frames
from folkmoot.federated.transfer.uploads import STRETCH, Upload
from support.federation import (
    ManualParticipant,
    RunningFederation,
    federation_config,
    running_federation,
    with_bucket,
)
from support.servers import S3Server

T = TypeVar("T")
SIZE = 1 << 19
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def _worth_it(monkeypatch):
    """Two updates of ours are just enough for a sum to begin early."""
    monkeypatch.setattr(early, "WORTH", 2 * 4 * SIZE)


def weights(number: int) -> dict[str, np.ndarray]:
    return {"w": np.random.default_rng(number).standard_normal(SIZE).astype(np.float32)}


def body_of(arrays: dict[str, np.ndarray]) -> bytes:
    return encode_header(layout_of(arrays)) + b"".join(a.tobytes() for a in arrays.values())


def config_of(folder: Path, **rules: Any) -> Any:
    sections = {"security": SecurityConfig(max_weight=0.0)}
    rules = {"rounds": 3, "min_participants": 2, **rules}
    return with_bucket(federation_config(folder, rules, **sections), url=CARRIED)


async def in_round_1(w: RunningFederation) -> list[tuple[ManualParticipant, CarriedWeights]]:
    """Two participants, in the order of their ids, whose first weights are the same."""
    both = []
    for name in "ab":
        one = w.participant(name)
        one.weights_port = (await one.rendezvous()).weights_port
        both.append((one, CarriedWeights(one)))
    for one, line in both:
        await one.end(await asyncio.to_thread(line.write_update, 0, "", weights(0)))
    await w.coordinator.until(lambda state: state.round == 1)
    return both


class HalfSent:
    """An update whose first half is there."""

    def __init__(self, w: RunningFederation, one: ManualParticipant, body: bytes) -> None:
        token = secrets.token_bytes(16)
        store = wire.StoreRequest(
            round=1, size=len(body), token=token, ahead=True, number_samples=2
        )
        self.line = socket.create_connection(("127.0.0.1", w.server.service.weights_port), PATIENCE)
        asked = wire.TransferRequest(store=one.signed("Store", store))
        self.line.sendall(frames.encode_frame(asked) + body[: len(body) // 2])
        self._rest = body[len(body) // 2 :]

    def finish(self) -> None:
        self.line.sendall(self._rest)
        assert not frames.read_frame(self.line, wire.TransferAnswer).code
        self.line.close()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a sum has got as far as it can with half of an update."""
    seen, wait_for = threading.Event(), Upload.wait_for

    def watched(upload: Upload, end: int, given_up: Callable[[], bool]) -> None:
        if max(end, upload.offset + STRETCH) > upload.size // 2:
            seen.set()
        wait_for(upload, end, given_up)

    monkeypatch.setattr(Upload, "wait_for", watched)
    return seen


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE)


def combined_at_the_end(w: RunningFederation) -> list[int]:
    """A list of the rounds whose model was made when they closed."""
    rounds: list[int] = []
    run = w.coordinator.run

    async def watched(function: Any, *arguments: Any) -> Any:
        if function.__name__ == "combine":
            rounds.append(w.state.round)
        return await run(function, *arguments)

    w.coordinator.run = watched
    return rounds


async def deliver(line: CarriedWeights, arrays: Any, samples: int = 1) -> None:
    end = wire.EndTrainingRoundRequest(round=1, number_samples=samples)
    assert await asyncio.to_thread(line.deliver, arrays, end)


async def model_of_2(w: RunningFederation) -> str:
    await w.coordinator.until(lambda state: state.round == 2)
    return digest_of(w.coordinator.store.global_path(2))


async def usual_model(folder: Path, samples: tuple[int, int] = (1, 2)) -> str:
    """Of the same updates, combined when all have come."""
    async with running_federation(folder, config_of(folder)) as w:
        w.coordinator.early._possible = False
        (_, line), (_, other) = await in_round_1(w)
        await deliver(line, weights(1), samples[0])
        await deliver(other, weights(2), samples[1])
        return await model_of_2(w)


@pytest.mark.parametrize(
    ("samples", "combined_late"),
    [
        pytest.param(2, [], id="a_sum_that_began_while_the_update_came_has_the_same_bits"),
        pytest.param(5, [1], id="a_sum_of_other_samples_than_were_told_counts_for_nothing"),
    ],
)
async def test_a_sum_begins_while_an_update_still_comes(
    tmp_path: Path, waiting: threading.Event, samples: int, combined_late: list[int]
) -> None:
    async with running_federation(tmp_path / "early", config_of(tmp_path / "early")) as w:
        (_, line), (b, _) = await in_round_1(w)
        late = combined_at_the_end(w)
        await deliver(line, weights(1))
        body = body_of(weights(2))
        half = await asyncio.to_thread(HalfSent, w, b, body)
        await until(waiting)
        await asyncio.to_thread(half.finish)
        await b.end(blake3(body).digest(), 1, samples=samples)
        model = await model_of_2(w)
        assert late == combined_late
    assert model == await usual_model(tmp_path / "usual", (1, samples))


@pytest.mark.parametrize(
    ("other_samples", "combined_late"),
    [
        pytest.param(2, [], id="a_sum_that_began_with_the_last_update_has_the_same_bits"),
        pytest.param(5, [1], id="a_sum_of_what_was_not_recorded_counts_for_nothing"),
    ],
)
async def test_a_small_sum_begins_when_the_last_update_was_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_samples: int, combined_late: list[int]
) -> None:
    monkeypatch.setattr(early, "WORTH", 1 << 40)
    async with running_federation(tmp_path / "early", config_of(tmp_path / "early")) as w:
        (_, line), (_, other) = await in_round_1(w)
        late, note = combined_at_the_end(w), w.coordinator.early.note_judged

        def told(delivery: Delivery) -> None:
            if delivery.samples == 2:
                assert len(w.state.deliveries) == 1, "it is not recorded yet"
            note(replace(delivery, samples=other_samples) if delivery.samples == 2 else delivery)

        monkeypatch.setattr(w.coordinator.early, "note_judged", told)
        await deliver(line, weights(1))
        await deliver(other, weights(2), 2)
        model = await model_of_2(w)
        assert late == combined_late
    assert model == await usual_model(tmp_path / "usual")


async def test_another_body_of_the_same_sender_takes_the_place_of_the_first(
    tmp_path: Path, waiting: threading.Event
) -> None:
    """What was summed of the first is gone."""
    async with running_federation(tmp_path / "early", config_of(tmp_path / "early")) as w:
        (_, line), (b, other) = await in_round_1(w)
        late = combined_at_the_end(w)
        await deliver(line, weights(1))
        half = await asyncio.to_thread(HalfSent, w, b, body_of(weights(7)))
        await until(waiting)
        await deliver(other, weights(2), 2)
        model = await model_of_2(w)
        half.line.close()
        assert late == []
    assert model == await usual_model(tmp_path / "usual")


async def test_a_round_that_closes_without_who_was_cut_off_has_the_others_model(
    tmp_path: Path, waiting: threading.Event
) -> None:
    config = config_of(tmp_path, quorum=0.5, round_deadline=3600.0)
    async with running_federation(tmp_path, config) as w:
        (_, line), (b, _) = await in_round_1(w)
        await deliver(line, weights(1))
        half = await asyncio.to_thread(HalfSent, w, b, body_of(weights(2)))
        await until(waiting)
        half.line.close()
        w.coordinator.liveness.forget([b.participant_id])
        w.coordinator.submit(m.Dropped((b.participant_id,)))
        await w.coordinator.until(lambda state: state.round == 2)
        path = w.coordinator.store.global_path(2)
        assert path.read_bytes()[-4 * SIZE :] == weights(1)["w"].tobytes()
        await asyncio.to_thread(w.coordinator.early.close)  # its thread is done
        left = [each.name for each in path.parent.iterdir()]
        assert left == ["global"], "nothing is left of the sum that was given up"


async def test_what_is_not_finite_spoils_no_sum(tmp_path: Path) -> None:
    async with running_federation(tmp_path / "early", config_of(tmp_path / "early")) as w:
        (_, line), (b, other) = await in_round_1(w)
        await deliver(line, weights(1))
        bad = weights(2)
        bad["w"][-1] = np.nan
        with pytest.raises(wire.RequestRefused, match="must be finite"):
            await deliver(other, bad, 2)
        assert b.participant_id in w.state.quarantined or b.participant_id in w.state.strikes


async def test_a_coordinator_stops_while_a_sum_waits(
    tmp_path: Path, waiting: threading.Event
) -> None:
    async with running_federation(tmp_path, config_of(tmp_path)) as w:
        (_, line), (b, _) = await in_round_1(w)
        await deliver(line, weights(1))
        half = await asyncio.to_thread(HalfSent, w, b, body_of(weights(2)))
        await until(waiting)
    half.line.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("folkmoot-early")]


async def test_an_aggregator_makes_no_model_and_begins_none(tmp_path: Path) -> None:
    async with running_federation(tmp_path, config_of(tmp_path)) as w:
        (_, line), (_, other) = await in_round_1(w)
        late = combined_at_the_end(w)
        w.coordinator.early._state = lambda: replace(w.state, region=True)
        await deliver(line, weights(1))
        await deliver(other, weights(2), 2)
        await model_of_2(w)
        assert late == [1]


async def test_a_sum_of_what_came_out_of_a_remote_bucket_begins_before_the_record(
    tmp_path: Path,
) -> None:
    config = with_bucket(config_of(tmp_path), url="memory:")
    async with running_federation(tmp_path, config) as w:
        shared = ParticipantBucket(w.coordinator.store.bucket)
        both = await w.join("a", "b")
        for one in both:
            one.weights = shared
            await one.deliver([0.0] * 4)
        await w.coordinator.until(lambda state: state.round == 1)
        late = combined_at_the_end(w)
        for one, value in zip(both, (1.0, 3.0), strict=True):
            await one.deliver([value] * 4, 1)
        await w.coordinator.until(lambda state: state.round == 2)
        model = shared.read_global(2, bytes.fromhex(w.state.global_digest))
        assert list(model["weights"]) == [2.0] * 4
        assert late == []


async def over_s3(
    folder: Path, server: S3Server, watch: Callable[[RunningFederation], T]
) -> tuple[str, T]:
    """The model of two updates that come out of a bucket, and what `watch` saw of it."""
    config = with_bucket(config_of(folder), url=server.new_bucket(), options=server.options)
    async with running_federation(folder, config) as w:
        both = await w.join("a", "b")
        for one in both:
            await one.deliver(weights(0))
        await w.coordinator.until(lambda state: state.round == 1)
        seen = watch(w)
        samples = {both[0]: 1, both[1]: 2}
        await asyncio.gather(
            *(one.deliver(weights(count), 1, count) for one, count in samples.items())
        )
        return await model_of_2(w), seen


async def test_a_sum_begins_while_updates_come_out_of_a_remote_bucket(
    tmp_path: Path,
    s3_over_tls: S3Server,
    waiting: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(w: RunningFederation) -> list[int]:
        w.coordinator.early._possible = False
        return combined_at_the_end(w)

    usual, late = await over_s3(tmp_path / "usual", s3_over_tls, never)
    assert late == [1]
    read = Bucket.read

    def halted(bucket: Bucket, key: str, *bounds: Any) -> Reading:
        size, pieces = read(bucket, key, *bounds)

        def until_the_sum_waits() -> Iterator[memoryview]:
            for number, piece in enumerate(pieces):
                if number == 4:
                    assert waiting.wait(PATIENCE)
                yield piece

        return Reading(size, until_the_sum_waits() if key.startswith("1/") else pieces)

    monkeypatch.setattr(Bucket, "read", halted)
    assert await over_s3(tmp_path / "early", s3_over_tls, combined_at_the_end) == (usual, [])
