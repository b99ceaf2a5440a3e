"""Secure aggregation over real gRPC: the coordinator and its participants, drop-outs, a restart."""

import asyncio
import threading

import numpy as np
import pytest

from folkmoot.core.federation import Rules
from folkmoot.core.federation.messages import Aggregate
from folkmoot.federated.aggregate.fedavg import FedAvg
from folkmoot.federated.aggregate.fedopt import FedAdam
from folkmoot.federated.coordinator import coordinator as coordinator_module
from folkmoot.federated.coordinator.config import BucketConfig, Federation, ServerConfig, rooted
from folkmoot.federated.coordinator.events import AttemptFailed, Unmasked
from folkmoot.federated.coordinator.server import serving
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.participant.connection import Connection
from folkmoot.federated.participant.loop import Settings, take_part
from folkmoot.federated.participant.participant import Participant
from folkmoot.federated.secure.config import SecureConfig
from folkmoot.federated.secure.messages import Shares, decode, encode
from folkmoot.host.signing import Identity
from support.federation import AGREES, Watched, logged
from support.models import save_model

SIZE = 1000
PATIENCE = 120.0  # a machine under load is slow, not wrong
PLAIN = FedAvg()


class Pulls(Participant):
    """Moves half of the way to a target of its own; all targets differ."""

    def __init__(self, number):
        self.target = np.random.default_rng(number).standard_normal(SIZE).astype(np.float32)
        self.number, self.samples, self.trained = number, number + 1, []
        self.everybody_is_here = threading.Event()

    def init_weights(self):
        return {"w": self.target}

    def train_round(self, weights, epochs, epoch_base):
        assert self.everybody_is_here.wait(PATIENCE)
        self.trained.append(epoch_base)
        return {"w": (weights["w"] + self.target) / 2}, self.samples, {}


def config(folder, secure=True, aggregation=PLAIN, port=0, **rules):
    folder.mkdir(exist_ok=True)
    save_model(folder / "zeros", {"w": np.zeros(SIZE, np.float32)})
    kept = BucketConfig(keep_updates=True)
    # Short times only where somebody is missed: a machine under load makes everybody slow.
    some_vanish = rules.get("spares", 0) > 0
    silent_after = {"heartbeat_time": 1.0, "heartbeat_timeout": 4.0} if some_vanish else {}
    rounds = {"rounds": 2, "min_participants": 4, **silent_after}
    given = Federation(
        run_id="sum",
        rounds=Rules(**(rounds | rules)),
        initial_weights="zeros",
        bucket=kept,
        server=ServerConfig(port=port, state="state"),
        secure=SecureConfig(enabled=secure, step_timeout=5.0 if some_vanish else 60.0),
        aggregation=aggregation,
    )
    return rooted(given, folder)


class Gone(Exception):
    """The participant's process ended."""


def gone_at(method, step=0):
    """A connection that dies before it makes this call in round 1."""

    class Dies(Connection):
        async def call(self, name, request, limit=30.0):
            if name == method and request.round == 1 and getattr(request, "step", step) == step:
                raise Gone
            return await super().call(name, request, limit)

    return Dies


async def takes_part(folder, server, participant, connect=Connection):
    identity = folder / f"identity-{participant.number}"
    settings = Settings(address=server.address, run_id="sum", policy=AGREES, identity=str(identity))
    try:
        await take_part(participant, settings, connect)
    except Gone:
        return


async def federate(folder, given, participants, dying=None):
    """Run a federation to its end; `dying` maps a participant's number to its connection."""
    async with serving(given, Watched) as server:
        parts = [
            takes_part(folder, server, one, (dying or {}).get(one.number, Connection))
            for one in participants
        ]
        await asyncio.gather(gate(server.coordinator, participants), *parts)
    return final(folder)


async def gate(coordinator, participants):
    """Nobody ends round 0 before all are connected, so round 1 begins with all."""
    await coordinator.until(lambda state: len(state.members) == len(participants))
    for one in participants:
        one.everybody_is_here.set()


def final(folder):
    with ModelFile(folder / "state/bucket/2/global") as model:
        return model.arrays()["w"].copy()


def expected(folder, participants):
    """The model that the plain formula gives for whoever was counted in each round."""
    by_id = {Identity.load(folder / f"identity-{p.number}").public.hex(): p for p in participants}
    counted = {event.round: event.keys for event in logged(folder / "state", Aggregate)}
    model = np.zeros(SIZE)
    for round_ in sorted(counted):
        here = [by_id[key.split("/")[1]] for key in counted[round_]]
        steps = [(model + p.target) / 2 for p in here]
        model = np.average(steps, axis=0, weights=[p.samples for p in here])
    return model


@pytest.mark.parametrize("aggregation", [PLAIN, FedAdam()], ids=["fedavg", "fedadam"])
async def test_masked_rounds_end_with_the_model_of_plain_ones(tmp_path, aggregation):
    results = [
        await federate(
            tmp_path / str(secure),
            config(tmp_path / str(secure), secure, aggregation),
            [Pulls(number) for number in range(4)],
        )
        for secure in (True, False)
    ]
    # FedAdam divides by a small number, which magnifies the quantisation.
    assert np.abs(results[0] - results[1]).max() < 2e-5
    unmasked = logged(tmp_path / "True" / "state", Unmasked)
    assert [(event.delivered, event.dropped) for event in unmasked] == [(4, 0), (4, 0)]


async def test_what_lies_in_the_bucket_tells_nothing(tmp_path):
    """Each upload is 64-bit words without a trace of the model; only their sum makes sense."""
    await federate(tmp_path, config(tmp_path), [Pulls(number) for number in range(4)])
    uploads = [path for path in (tmp_path / "state/bucket/1").iterdir() if path.name != "global"]
    assert len(uploads) == 4
    for path in uploads:
        with ModelFile(path) as upload:
            words = upload.arrays()["w"].copy()
        assert words.dtype == np.int64
        # A step in fixed point would have its thirty upper bits all alike.
        assert len(np.unique(words >> 34)) > 0.9 * SIZE


@pytest.mark.parametrize(
    ("connect", "counts"),
    [
        (gone_at("EndTrainingRound"), (3, 1)),
        (gone_at("SecureStep", 3), (4, 0)),
        (gone_at("SecureStep", 4), (4, 0)),
    ],
    ids=["before it delivered", "before it confirmed", "before it revealed"],
)
async def test_a_member_that_vanishes_after_dealing_does_not_hold_up_the_sum(
    tmp_path, connect, counts
):
    people = [Pulls(number) for number in range(4)]
    given = config(tmp_path, min_participants=3, spares=1, quorum=0.75)
    model = await federate(tmp_path, given, people, {2: connect})
    assert np.abs(model - expected(tmp_path, people)).max() < 1e-6
    last = logged(tmp_path / "state", Unmasked)[-1]
    assert (last.delivered, last.dropped) == counts


async def test_below_the_threshold_the_rest_begin_again_and_train_no_second_time(tmp_path):
    people = [Pulls(number) for number in range(6)]
    given = config(tmp_path, min_participants=4, spares=2, quorum=0.5)
    dead = gone_at("EndTrainingRound")
    model = await federate(tmp_path, given, people, {2: dead, 3: dead})
    assert np.abs(model - expected(tmp_path, people)).max() < 1e-6
    assert len(logged(tmp_path / "state", AttemptFailed)) >= 1
    assert all(len(p.trained) == len(set(p.trained)) for p in people)


class DealsGarbage(Connection):
    """A member whose sealed shares nobody can open, in round 1."""

    async def call(self, name, request, limit=30.0):
        if name == "SecureStep" and request.round == 1 and request.step == 1:
            dealt = decode(request.payload, Shares)
            request.payload = encode(Shares(dict.fromkeys(dealt.sealed, bytes(82))))
        return await super().call(name, request, limit)


async def test_a_dealer_of_garbage_is_left_out_and_stops_nobody(tmp_path):
    people = [Pulls(number) for number in range(4)]
    given = config(tmp_path, min_participants=3, spares=1, quorum=0.75)
    model = await federate(tmp_path, given, people, {2: DealsGarbage})
    assert np.abs(model - expected(tmp_path, people)).max() < 1e-6
    assert logged(tmp_path / "state", Unmasked)[-1].delivered == 3
    assert "dealt by" in logged(tmp_path / "state", AttemptFailed)[-1].reason


async def test_a_coordinator_that_restarts_in_a_masked_round_ends_with_the_same_bits(
    tmp_path, free_port
):
    undisturbed = tmp_path / "undisturbed"
    whole = await federate(undisturbed, config(undisturbed), [Pulls(number) for number in range(4)])
    folder = tmp_path / "disturbed"
    given = config(folder, port=free_port)
    async with serving(given, Watched) as server:
        people = [Pulls(number) for number in range(4)]
        parts = [asyncio.create_task(takes_part(folder, server, one)) for one in people]
        await gate(server.coordinator, people)
        await server.coordinator.until(lambda state: len(state.deliveries) >= 2)
    async with serving(given) as server:
        assert server.coordinator.resumed
        await asyncio.gather(*parts)
    assert np.array_equal(final(folder), whole)


async def test_a_crash_after_the_reveal_asks_nobody_to_reveal_again(tmp_path, monkeypatch):
    """The coordinator dies while it combines; afterwards it needs no participant at all."""
    undisturbed = tmp_path / "undisturbed"
    whole = await federate(undisturbed, config(undisturbed), [Pulls(number) for number in range(4)])
    folder = tmp_path / "disturbed"
    given = config(folder)
    combining = threading.Event()

    combine = coordinator_module.combine

    def fails_in_round_1(config, store, state, *rest):
        if state.round == 1:
            combining.set()
            raise OSError("the disk is gone")
        return combine(config, store, state, *rest)

    monkeypatch.setattr(coordinator_module, "combine", fails_in_round_1)
    async with serving(given, Watched) as server:
        people = [Pulls(number) for number in range(4)]
        parts = [asyncio.create_task(takes_part(folder, server, one)) for one in people]
        await gate(server.coordinator, people)
        assert await asyncio.to_thread(combining.wait, PATIENCE)
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)
    monkeypatch.setattr(coordinator_module, "combine", combine)
    async with serving(given) as server:
        await server.finished()
    assert np.array_equal(final(folder), whole)
    assert len(logged(folder / "state", Unmasked)) == 2


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"rounds": {"rounds": 1}}, "min_participants"),
        ({"rounds": {"rounds": 1, "min_participants": 3, "buffer": 3}}, "buffer"),
        (
            {"rounds": {"rounds": 1, "min_participants": 2}, "aggregation": {"strategy": "median"}},
            "aggregation",
        ),
    ],
)
def test_what_cannot_be_done_on_a_sum_is_refused_in_the_config(table, word):
    import msgspec

    given = msgspec.convert({"run_id": "x", "secure": {"enabled": True}, **table}, Federation)
    assert any(word in broken.field + broken.reason for broken in given.rules())
