"""What a stranger, a liar or a broken line can send: refused, and the round goes on."""

from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from folkmoot.federated import wire
from folkmoot.federated.coordinator.config import SecurityConfig
from folkmoot.federated.coordinator.events import Reported, ReportRefused
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.signing import sign_request
from folkmoot.host.signing import Signer
from support.federation import (
    code_of,
    federation_config,
    identity,
    logged,
    refusal,
    running_federation,
    with_bucket,
)
from support.models import save_model

Code = grpc.StatusCode


def signed(one: Any, method: str, request: Any) -> Any:
    request.run_id = "test"
    return sign_request(one.signer, method, request, one.session)


async def send(one: Any, method: str, request: Any) -> Any:
    """Send a request as it is, without signing it again."""
    return await one._calls[method](request, timeout=60)


async def test_a_replayed_request_is_refused(tmp_path: Path) -> None:
    async with running_federation(tmp_path) as w:
        (a,) = await w.join("a")
        request = signed(a, "Heartbeat", wire.HeartbeatRequest())
        await send(a, "Heartbeat", request)
        code, reason = await refusal(send(a, "Heartbeat", request))
        assert code == Code.UNAUTHENTICATED
        assert "replay" in reason


@pytest.mark.parametrize(
    "alter",
    [
        lambda r: setattr(r, "number_samples", 10**6),
        lambda r: setattr(r, "round", 1),
        lambda r: setattr(r, "digest", bytes(32)),
        lambda r: setattr(r, "metrics", "{}"),
        lambda r: setattr(r.proof, "nonce", r.proof.nonce + 1),
        lambda r: setattr(r.proof, "session", bytes(16)),
        lambda r: setattr(r.proof, "public_key", identity("b").public),
        lambda r: setattr(r.proof, "signature", bytes(64)),
        lambda r: setattr(r.proof, "signature", b""),
        lambda r: r.ClearField("proof"),
    ],
)
async def test_an_altered_request_is_refused(tmp_path: Path, alter: Any) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        a, _ = await w.join("a", "b")
        request = wire.EndTrainingRoundRequest(
            number_samples=1, digest=a.upload(1.0), metrics='{"loss": 1}'
        )
        alter(signed(a, "EndTrainingRound", request))
        assert await code_of(send(a, "EndTrainingRound", request)) == Code.UNAUTHENTICATED
        assert w.state.deliveries == {}
        await a.deliver(1.0)


async def test_a_signature_is_good_for_one_method_and_one_run_only(tmp_path: Path) -> None:
    async with running_federation(tmp_path) as w:
        (a,) = await w.join("a")
        other = signed(a, "Heartbeat", wire.StartTrainingRoundRequest())
        assert await code_of(send(a, "StartTrainingRound", other)) == Code.UNAUTHENTICATED
        a.run_id = "another"
        code, reason = await refusal(a.beat())
        assert code == Code.UNAUTHENTICATED
        assert "another" in reason


async def test_what_was_heard_before_a_restart_is_worth_nothing_after_it(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        (a,) = await w.join("a")
        recorded = signed(a, "Rendezvous", wire.RendezvousRequest())
    async with running_federation(tmp_path, min_participants=2) as w:
        thief = w.participant("thief")
        answer = await send(thief, "Rendezvous", recorded)
        assert answer.reply == wire.LATER
        heartbeat = sign_request(
            Signer(identity("a")), "Heartbeat", wire.HeartbeatRequest(), b"old"
        )
        assert await code_of(send(thief, "Heartbeat", heartbeat)) == Code.UNAUTHENTICATED


async def test_only_who_is_on_the_allow_list_takes_part_under_its_name(tmp_path: Path) -> None:
    known = SecurityConfig(participants={"clinic": identity("a").public.hex()})
    config = federation_config(tmp_path, {"rounds": 1}, security=known)
    async with running_federation(tmp_path, with_bucket(config, keep_updates=True)) as w:
        code, reason = await refusal(w.participant("stranger").rendezvous())
        assert code == Code.PERMISSION_DENIED
        assert "allow-list" in reason
        (clinic,) = await w.join("a")
        assert clinic.participant_id == "clinic"
        await clinic.deliver(2.0)
        await w.global_of(1)
        assert {e.key for e in w.bucket.list("0")} == {"0/clinic"}


async def test_an_oversized_message_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with running_federation(tmp_path) as w:
        (a,) = await w.join("a")
        digest = a.upload(1.0)
        assert await code_of(a.end(digest, metrics="x" * 100_000)) == Code.RESOURCE_EXHAUSTED
        await a.end(digest)


async def test_an_oversized_object_is_refused_before_it_is_read(tmp_path: Path) -> None:
    config = with_bucket(federation_config(tmp_path, {}), max_object=10_000)
    async with running_federation(tmp_path, config) as w:
        (a,) = await w.join("a")
        code, reason = await refusal(a.deliver(np.zeros(5000)))
        assert code == Code.INVALID_ARGUMENT
        assert "larger than 10000 bytes" in reason


def _truncated(body: bytes) -> bytes:
    return body[:-1]


def _flipped(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


@pytest.mark.parametrize(
    "damage",
    [_truncated, _flipped, lambda b: b"", lambda b: b"\xff" * 64, lambda b: b + b"x"],
    ids=["truncated", "flipped", "empty", "noise", "longer"],
)
async def test_a_damaged_object_is_data_loss_costs_a_strike_and_may_be_sent_again(
    tmp_path: Path, damage: Any
) -> None:
    async with running_federation(tmp_path) as w:
        (a,) = await w.join("a")
        digest = a.upload(5.0)
        key = f"0/{a.participant_id}"
        body = bytes(w.bucket.get(key, 10_000))
        w.bucket.put(key, damage(body))
        assert await code_of(a.end(digest)) == Code.DATA_LOSS
        assert w.state.strikes == {a.participant_id: 1}
        await a.deliver(5.0)
        assert await w.global_of(1) == [5.0]


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        ({"weights": np.ones((2, 1), np.float32)}, "shape"),
        ({"weights": np.ones(2, np.float64)}, "dtype"),
        ({"other": np.ones(2, np.float32)}, "missing"),
        ({"weights": np.ones(2, np.float32), "more": np.ones(1, np.float32)}, "not in the global"),
        ({"weights": np.array([1, np.inf], np.float32)}, "finite"),
        ({"weights": np.array([np.nan, 1], np.float32)}, "finite"),
    ],
)
async def test_a_bad_update_is_quarantined_with_its_reason(
    tmp_path: Path, update: dict[str, np.ndarray], reason: str
) -> None:
    async with running_federation(tmp_path, rounds=2) as w:
        (a,) = await w.join("a")
        await a.deliver([1.0, 2.0])
        await w.global_of(1)
        code, said = await refusal(a.deliver(update, 1))
        assert code == Code.INVALID_ARGUMENT
        assert reason in said
        await a.deliver([3.0, 4.0], 1)
        assert list(await w.global_of(2)) == [3.0, 4.0]


async def test_the_same_update_again_is_answered_as_before_and_counts_once(tmp_path: Path) -> None:
    async with running_federation(tmp_path, rounds=3, min_participants=2) as w:
        a, b = await w.join("a", "b")
        digest = a.upload(1.0)
        assert not (await a.end(digest)).again
        assert (await a.end(digest)).again
        await b.deliver(3.0)
        assert await w.global_of(1) == [2.0]
        assert (await a.end(digest)).again  # even when the round is over


async def test_an_object_changed_after_it_was_counted_changes_nothing(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        a, b = await w.join("a", "b")
        await a.deliver(1.0)
        a.upload(1000.0)
        await b.deliver(3.0)
        assert await w.global_of(1) == [2.0]


async def test_bad_metrics_never_cost_an_update(tmp_path: Path) -> None:
    async with running_federation(tmp_path, rounds=9) as w:
        (a,) = await w.join("a")
        reports = ["", "{}", '{"loss": null, "by_class": [1, 2], "table": [[1], [2]]}']
        deep = '{"a": ' + "[" * 200 + "]" * 200 + "}"
        refused = ["no json", "[1]", '{"a":', "[" * 5000, "null", deep]
        for round_, metrics in enumerate(reports + refused):
            await a.deliver(1.0, round_, metrics=metrics)
            await w.global_of(round_ + 1)
        assert len(logged(tmp_path / "state", Reported)) == len(reports)
        assert len(logged(tmp_path / "state", ReportRefused)) == len(refused)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 255))
def test_no_bytes_make_the_reader_do_anything_but_refuse(
    tmp_path: Path, noise: bytes, at: int, value: int
) -> None:
    good = tmp_path / "good"
    save_model(good, {"w": np.arange(20, dtype=np.float32), "n": np.array(3)})
    body = bytearray(good.read_bytes())
    body[at % len(body)] = value
    for candidate in (noise, bytes(body), len(noise).to_bytes(8, "little") + noise):
        path = tmp_path / "candidate"
        path.write_bytes(candidate)
        try:
            with ModelFile(path) as model:
                arrays = model.arrays()
                assert sum(a.nbytes for a in arrays.values()) < len(candidate)
        except ValueError:
            continue
