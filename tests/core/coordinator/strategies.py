"""Runs and lists of messages for Hypothesis to draw.

Each maker is given the state and two drawn numbers, and gives the messages that a client, the owner
or a stranger could send just then.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from folkmoot.core import bloom
from folkmoot.core.config import all_broken
from folkmoot.core.coordinator import Coordinator, Phase
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.audits import duties
from folkmoot.core.coordinator.committee import WitnessProof
from folkmoot.core.coordinator.config import CoordinatorConfig, Model, Run
from folkmoot.core.coordinator.health import participant_item

SEQ = 4
ROOT = "s3://runs/"
IDS = [sha256(bytes([k])).digest() for k in range(9)]
Step = tuple[str, int, int, int | None]


def someone(a: int) -> bytes:
    return IDS[a % len(IDS)]


def model_of(state: Coordinator, a: int) -> bytes:
    """What a client says its model's hash is: mostly what all say, at times another one."""
    height = state.round.height if state.epoch.rounds else 0
    return sha256(bytes([height % 256, 99 if a % 7 == 6 else 0])).digest()


def join(state: Coordinator, a: int, b: int) -> list[Any]:
    model = [b"", state.model_hash, bytes(32), b"short"][b % 4]
    return [m.Join(someone(a), "another" if b % 11 == 10 else "run", model)]


def join_all(state: Coordinator, a: int, b: int) -> list[Any]:
    return [m.Join(identity, "run", state.model_hash) for identity in IDS[: 1 + a % len(IDS)]]


def ready(state: Coordinator, a: int, b: int) -> list[Any]:
    return [m.Ready(someone(a), state.epoch_number + b % 5 // 4)]


def ready_all(state: Coordinator, a: int, b: int) -> list[Any]:
    return [m.Ready(identity, state.epoch_number) for identity in IDS]


def attest(state: Coordinator, index: int, seen: int, a: int) -> m.OpportunisticWitness:
    """A well-formed witness message that names the clients in the bits of `seen`."""
    current = state.round
    items = [participant_item(c.id) for k, c in enumerate(state.epoch.clients) if seen >> k & 1]
    bits = bloom.fill(items, state.bloom_shape(current, index)) if items else None
    size = bloom.bloom_bits(len(state.epoch.clients)) // 8
    given = duties(state, current, state.place(current, index))
    return m.OpportunisticWitness(
        state.epoch.clients[state.place(current, index)].id,
        state.epoch_number,
        current.height,
        state.committee(current).get_witness(index),
        bits or bytes(size),
        bytes(size),
        bytes(32),
        model_of(state, a),
        passed=tuple(place for place in given if seen >> place & 1),
        failed=tuple(place for place in given if not seen >> place & 1),
    )


def witness(state: Coordinator, a: int, b: int) -> list[Any]:
    if not state.epoch.rounds:
        return nonsense_witness(state, a, b)
    return [attest(state, a % state.roster_size(state.round), b, a // 16)]


def witness_all(state: Coordinator, a: int, b: int) -> list[Any]:
    """All elected witnesses saw everybody, but for the clients in the bits of `a`."""
    if not state.epoch.rounds:
        return []
    elected = state.committee(state.round).witness_indices()
    return [attest(state, index, ~a & 511, b) for index in elected]


def nonsense_witness(state: Coordinator, a: int, b: int) -> list[Any]:
    noise = sha256(bytes([a % 256, b % 256])).digest()
    proof = WitnessProof(a - 256, b - 256, bool(a % 2))
    made = m.OpportunisticWitness(
        [someone(a), noise, b""][b % 3], b - 3, a - 3, proof, noise, noise * 2, noise, noise[:9]
    )
    if not state.epoch.rounds:
        return [made]
    true = attest(state, a % state.roster_size(state.round), b, 0)
    forged = [
        made,
        replace(true, sender=made.sender),
        replace(true, epoch=made.epoch),
        replace(true, height=made.height),
        replace(true, proof=proof),
        replace(true, proof=replace(true.proof, witness=True, position=0)),
        replace(true, proof=replace(true.proof, position=true.proof.position + 1)),
        replace(true, proof=replace(true.proof, position=true.proof.position ^ 1)),
        replace(true, participant_bloom=b"\xff" * len(true.participant_bloom)),
        replace(true, participant_bloom=(noise * 9)[: len(true.participant_bloom)]),
        replace(true, broadcast_bloom=noise[: b % 32]),
        replace(true, model_hash=b""),
    ]
    if state.run.config.verification_percent:
        forged.append(replace(true, passed=(a % 9,), failed=(b % 9,)))
    return [forged[a % len(forged)]]


def cooldown(state: Coordinator, a: int, b: int) -> list[Any]:
    location = [ROOT + "step", "elsewhere", ROOT + "x" * 2000, ""][b % 7 % 4]
    model = bytes(32) if b % 9 == 8 else state.model_hash
    return [m.OpportunisticCooldown(someone(a), state.epoch_number - b % 5 // 4, location, model)]


def cooldown_all(state: Coordinator, a: int, b: int) -> list[Any]:
    return [message for k in range(len(IDS)) for message in cooldown(state, k, 0)]


def health(state: Coordinator, a: int, b: int) -> list[Any]:
    speed = [0, 1, 7, 1000, -5, 2**70][b % 6]
    accused = tuple(identity for k, identity in enumerate(IDS) if b >> k & 1)
    return [m.HealthCheck(someone(a), accused if a % 3 == 0 else (), speed)]


def health_all(state: Coordinator, a: int, b: int) -> list[Any]:
    return [m.HealthCheck(identity, (), k + 1) for k, identity in enumerate(IDS)]


def accuse(state: Coordinator, a: int, b: int) -> list[Any]:
    judged = state.epoch.judged
    places = judged.unhealthy if judged else ()
    return [m.HealthCheck(someone(a), tuple(state.epoch.clients[p].id for p in places))]


def withdraw(state: Coordinator, a: int, b: int) -> list[Any]:
    return [m.Withdraw(someone(a) if b % 8 else b"nobody")]


def withdraw_all(state: Coordinator, a: int, b: int) -> list[Any]:
    return [m.Withdraw(identity) for identity in IDS[a % 3 :]]


def owner(state: Coordinator, a: int, b: int) -> list[Any]:
    config = replace(state.run.config, total_steps=a % 8, delay=b % 3)
    changed = replace(state.run, config=config)
    return [
        [m.Pause(), m.Resume(), m.Update(changed), m.Update(replace(changed, run_id=""))][b % 4]
    ]


def tick(state: Coordinator, a: int, b: int) -> list[Any]:
    return [m.Tick()]


def honest(state: Coordinator, a: int, b: int) -> list[Any]:
    """What an honest crowd does in this phase."""
    alive = health_all(state, 8, 0)
    match state.phase:
        case Phase.WaitingForMembers:
            return join_all(state, 8 - b % 3, 0)
        case Phase.Warmup:
            return [*alive, *ready_all(state, 0, 0)]
        case Phase.RoundTrain | Phase.RoundWitness:
            missing = a if a < 64 else 0
            return [*alive, *witness_all(state, missing, b)]
        case Phase.Cooldown:
            return cooldown_all(state, 0, 0)
        case _:
            return [m.Resume() if a % 2 else owner(state, 7, 2)[0]]


MAKERS: dict[str, Callable[[Coordinator, int, int], list[Any]]] = {
    maker.__name__: maker
    for maker in (
        join, join_all, ready, ready_all, witness, witness_all, nonsense_witness, cooldown,
        cooldown_all, health, health_all, accuse, withdraw, withdraw_all, owner, tick, honest,
    )
}  # fmt: skip
# How time goes on before a step, in milliseconds; None is to the next deadline.
USUAL_LEAPS = [0, 1, 1, 1, None, None]
LEAPS = [*USUAL_LEAPS * 3, 600, -400, 10**7, -(10**12), 2**60]
NUMBERS = st.integers(0, 511)
STEPS = st.lists(
    st.tuples(st.just("honest"), NUMBERS, NUMBERS, st.sampled_from(USUAL_LEAPS))
    | st.tuples(st.sampled_from(sorted(MAKERS)), NUMBERS, NUMBERS, st.sampled_from(USUAL_LEAPS))
    | st.tuples(
        st.sampled_from(["honest", "tick", *MAKERS]), NUMBERS, NUMBERS, st.sampled_from(LEAPS)
    ),
    min_size=30,  # a short run hardly ends an epoch
    max_size=60,
)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    least = draw(st.integers(1, 3))
    start = draw(st.integers(1, 9))
    config = CoordinatorConfig(
        total_steps=draw(st.integers(1, 8)),
        min_clients=least,
        init_min_clients=least + draw(st.integers(0, 2)),
        max_clients=draw(st.integers(5, 8)),
        warmup_time=1.0,
        max_round_train_time=1.0,
        round_witness_time=0.5,
        cooldown_time=1.0,
        epoch_time=draw(st.sampled_from([1.5, 10.0, 1e5])),
        rounds_per_epoch=draw(st.none() | st.integers(1, 4)),
        global_batch_size_start=start,
        global_batch_size_end=start + draw(st.integers(0, 5)),
        global_batch_size_warmup_tokens=draw(st.integers(0, 100)),
        witness_nodes=draw(st.sampled_from([0, 0, 1])),
        health_check_timeout=draw(st.sampled_from([2.0, 1e5])),
        delay=draw(st.integers(0, 2)),
        work_by_speed=draw(st.booleans()),
        verification_percent=draw(st.sampled_from([0, 30, 100])),
    )
    model = Model(max_seq_len=SEQ, checkpoint=draw(st.sampled_from(["", ROOT])))
    run = Run(run_id="run", config=config, model=model)
    assert not list(all_broken(run))
    return run
