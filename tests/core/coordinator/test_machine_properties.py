"""The whole machine under any list of messages, sensible or not.

Hypothesis draws the messages; `play` holds every claim after each of them. `Ledger` is a second
bookkeeping of samples, kept as plain sets from the effects alone, that the state must agree with.
"""

from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from math import floor
from typing import Any, NamedTuple

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from folkmoot.core import bloom
from folkmoot.core.coordinator import Coordinator, RunState, apply, create, decode, encode
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import Share
from folkmoot.core.coordinator.committee import WitnessProof
from folkmoot.core.coordinator.config import CoordinatorConfig, Model, Run
from folkmoot.core.coordinator.health import participant_item
from folkmoot.core.coordinator.machine import next_tick
from folkmoot.core.coordinator.state import Round
from folkmoot.core.coordinator.view import apply_change, encode_change, view

SEQ = 4
ROOT = "s3://runs/"
IDS = [sha256(bytes([k])).digest() for k in range(9)]
Step = tuple[str, int, int, int | None]


class Ledger:
    """Where every sample is: learnt, owed, or in flight with the round that trains it."""

    def __init__(self) -> None:
        self.attested: set[int] = set()
        self.owed: set[int] = set()
        self.flying: dict[int, set[int]] = {}
        self.next = 0
        self.stored: tuple[set[int], set[int], int] = (set(), set(), 0)

    def hear(self, effect: m.Effect, after: Coordinator, closing: Round | None) -> None:
        match effect:
            case m.RoundStarted(height=height, samples=samples):
                assert samples in (0, ramp(after.run.config, self.next))
                self.start(height, samples, numbered(after.round.spans))
            case m.RoundJudged(height=height, attested=attested, owed=owed):
                assert closing is not None
                learnt = seen_by_quorum(after, closing, height)
                work = self.flying.pop(height)
                assert (attested, owed) == (len(learnt), len(work - learnt))
                self.attested |= learnt
                self.owed |= work - learnt
            case m.CheckpointStored():
                assert not self.flying
                self.stored = set(self.attested), set(self.owed), self.next
            case m.Rewound():
                attested_, owed_, self.next = self.stored
                self.attested, self.owed, self.flying = set(attested_), set(owed_), {}
            case m.EpochEnded():
                assert not self.flying, "an epoch ended with results that nobody judged"

    def start(self, height: int, samples: int, work: list[int]) -> None:
        assert samples == len(work) == len(set(work))
        again = [sample for sample in work if sample < self.next]
        fresh = [sample for sample in work if sample >= self.next]
        assert again == sorted(self.owed)[: len(again)], "owed samples come first, in order"
        assert fresh == list(range(self.next, self.next + len(fresh)))
        assert not fresh or len(again) == len(self.owed)
        self.owed -= set(again)
        self.next += len(fresh)
        if work:
            self.flying[height] = set(work)

    def agrees_with(self, state: Coordinator) -> None:
        progress = state.progress
        parts = [self.attested, self.owed, *self.flying.values()]
        assert sum(map(len, parts)) == len(set().union(*parts)) == self.next, "a sample twice"
        assert set().union(*parts) == set(range(progress.data_index)), "a sample lost"
        assert sorted(self.owed) == numbered(progress.owed)
        assert progress.tokens == SEQ * len(self.attested)


def numbered(spans: Share) -> list[int]:
    return [sample for span in spans for sample in range(span.start, span.stop)]


def ramp(config: CoordinatorConfig, index: int) -> int:
    """The batch size after `index` samples: the straight line, half rounded up."""
    tokens, over = index * SEQ, config.global_batch_size_warmup_tokens
    if tokens >= over:
        return config.batch_size_end
    gain = Fraction((config.batch_size_end - config.global_batch_size_start) * tokens, over)
    return floor(config.global_batch_size_start + gain + Fraction(1, 2))


def seen_by_quorum(state: Coordinator, by: Round, height: int) -> set[int]:
    """The samples of a round whose trainers enough witnesses of `by` saw, one look at a time."""
    work = state.round_at(height)
    assert work is not None
    roster = [p for p in range(len(state.epoch.clients)) if p not in work.absent]
    elected = min(32, len(state.epoch.clients) - len(by.absent))
    elected = min(elected, state.run.config.witness_nodes or 32)
    quorum = max(2 * elected // 3, elected // 2 + 1)
    learnt: set[int] = set()
    for index, share in state.assignment(work).shares():
        item = participant_item(state.epoch.clients[roster[index]].id)
        votes = 0
        for witness in by.witnesses:
            shape = state.bloom_shape(by, witness.proof.index)
            votes += all(
                witness.participant_bloom[p // 8] >> p % 8 & 1
                for p in (bloom.fnv1a(item, key) % shape.bits for key in shape.keys)
            )
        if votes >= quorum:
            learnt |= set(numbered(share))
    return learnt


# The messages. Each maker is given the state and two drawn numbers, and gives the messages that
# a client, the owner or a stranger could send just then.


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
    return m.OpportunisticWitness(
        state.epoch.clients[state.place(current, index)].id,
        state.epoch_number,
        current.height,
        state.committee(current).get_witness(index),
        bits or bytes(size),
        bytes(size),
        bytes(32),
        model_of(state, a),
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
    match state.run_state:
        case RunState.WaitingForMembers:
            return join_all(state, 8 - b % 3, 0)
        case RunState.Warmup:
            return [*alive, *ready_all(state, 0, 0)]
        case RunState.RoundTrain | RunState.RoundWitness:
            missing = a if a < 64 else 0
            return [*alive, *witness_all(state, missing, b)]
        case RunState.Cooldown:
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
    )
    model = Model(max_seq_len=SEQ, checkpoint=draw(st.sampled_from(["", ROOT])))
    run = Run(run_id="run", config=config, model=model)
    assert not list(run.all_rules())
    return run


class Member(NamedTuple):
    id: bytes
    waits: bool


def members(state: Coordinator) -> set[Member]:
    here = [Member(c.id, False) for c in state.epoch.clients if c.left is None]
    waiting = [Member(p.id, True) for p in state.pending]
    assert len({member.id for member in here + waiting}) == len(here) + len(waiting)
    assert len(state.pending) == len(waiting)
    return {*here, *waiting}


def nobody_is_lost(before: Coordinator, after: Coordinator, effects: tuple[Any, ...]) -> None:
    removed = [e.id for e in effects if isinstance(e, m.ClientRemoved)]
    joined = {e.id for e in effects if isinstance(e, m.ClientJoined)}
    was, now = members(before), members(after)
    assert {x.id for x in was} | joined == {x.id for x in now} | set(removed)
    assert len(set(removed)) == len(removed)
    assert not set(removed) & {x.id for x in now}
    moved = {x.id for x in was - now} - set(removed)
    kinds = {type(e) for e in effects}
    into = {x.id for x in now if not x.waits} & moved
    out = {x.id for x in now if x.waits} & moved
    assert not into or m.EpochStarted in kinds
    assert not out or m.EpochEnded in kinds


def nothing_goes_back(before: Coordinator, after: Coordinator, effects: tuple[Any, ...]) -> None:
    def key(state: Coordinator) -> tuple[int, int]:
        return state.epoch_number, state.round.height if state.epoch.rounds else -1

    assert key(after) >= key(before)
    rewound = any(isinstance(effect, m.Rewound) for effect in effects)
    assert rewound or after.progress.step >= before.progress.step
    assert rewound or after.progress.data_index >= before.progress.data_index


def old_proofs_hold(before: Coordinator, after: Coordinator) -> None:
    """Whoever left, what was computed for a stored round is what anyone computes now."""
    for old in before.epoch.rounds:
        new = after.round_at(old.height)
        if new is None or after.epoch_number != before.epoch_number:
            continue
        committee = after.committee(new)
        assert all(committee.verify_witness(witness.proof) for witness in old.witnesses)
        assert new.witnesses[: len(old.witnesses)] == old.witnesses
        assert before.assignment(old).shares() == after.assignment(new).shares()
        for index in range(before.roster_size(old)):
            place = before.place(old, index)
            assert after.place(new, index) == place
            assert after.index(new, place) == index
            assert after.epoch.clients[place].id == before.epoch.clients[place].id


def new_things_are_true(after: Coordinator, effect: m.Effect) -> None:
    """Whoever begins a round is in the epoch, and whoever witnesses one was elected to."""
    match effect:
        case m.RoundStarted():
            gone = [place for place, client in enumerate(after.epoch.clients) if client.left]
            assert list(after.round.absent) == gone
        case m.WitnessAccepted(id=identity, height=height):
            round_ = after.round_at(height)
            if round_ is None:  # it was the last of the run, and closed it
                assert not after.epoch.clients
                return
            proof = round_.witnesses[-1].proof
            assert after.committee(round_).verify_witness(proof)
            assert proof.witness
            assert after.epoch.clients[after.place(round_, proof.index)].id == identity
            assert len({w.proof.index for w in round_.witnesses}) == len(round_.witnesses)


def check(before: Coordinator, message: Any, now: int, seed: int, ledger: Ledger) -> Coordinator:
    """Apply one message and hold every claim."""
    after, effects = apply(before, message, now, seed)
    again = apply(decode(encode(before)), message, now, seed)
    assert encode(again.state) == encode(after)
    assert again.effects == effects
    if any(isinstance(effect, m.Refused) for effect in effects):
        assert len(effects) == 1
        assert after is before
        return after
    nobody_is_lost(before, after, effects)
    nothing_goes_back(before, after, effects)
    if any(isinstance(effect, m.ClientRemoved) for effect in effects):
        old_proofs_hold(before, after)
    closing = after.round_at(before.round.height) if before.epoch.rounds else None
    for effect in effects:
        new_things_are_true(after, effect)
        ledger.hear(effect, after, closing)
    ledger.agrees_with(after)
    assert after.progress.step <= max(before.progress.step, after.run.config.total_steps)
    due = next_tick(after, now)
    assert due is None or due >= now
    return after


class Watcher:
    """Who was shown a state and is then told of changes only."""

    def __init__(self, state: Coordinator) -> None:
        self.state, self.shown = state, view(state)
        self.seen = self.shown

    def follow(self, state: Coordinator) -> None:
        shown = view(state, (self.state, self.shown))
        assert encode(shown) == encode(view(state)), "a view depends on how it was found"
        if change := encode_change(self.shown, shown):
            self.seen = apply_change(self.seen, change)
        assert encode(self.seen) == encode(shown), "a change does not give what it tells of"
        self.state, self.shown = state, shown


def play(run: Run, steps: list[Step]) -> None:
    now = 0
    state = create(run, now)
    ledger = Ledger()
    watcher, slow = Watcher(state), Watcher(state)
    for number, (name, a, b, leap) in enumerate(steps):
        due = next_tick(state, now)
        now = max(-(2**62), min(2**62, (due or now) if leap is None else now + leap))
        for message in MAKERS[name](state, a, b):
            state = check(state, message, now, 3 * number + a, ledger)
            watcher.follow(state)
        if number % 3 == 0:
            slow.follow(state)


# No `explain` phase: it takes minutes over a list of this length and says little.
@settings(
    max_examples=100,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
@given(runs(), STEPS)
def test_no_list_of_messages_breaks_a_claim(run: Run, steps: list[Step]) -> None:
    play(run, steps)
