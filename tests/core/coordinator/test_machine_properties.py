"""The whole machine under any list of messages, sensible or not.

Hypothesis draws the messages; `play` holds every claim after each of them. `Ledger` is a second
bookkeeping of samples, kept as plain sets from the effects alone, that the state must agree with.
"""

from fractions import Fraction
from math import floor
from typing import Any, NamedTuple

from hypothesis import Phase, given, settings

from core.coordinator.strategies import MAKERS, SEQ, STEPS, Step, runs
from folkmoot.core.coordinator import Coordinator, apply, create, decode, encode
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import numbers
from folkmoot.core.coordinator.config import CoordinatorConfig, Run
from folkmoot.core.coordinator.health import participant_item
from folkmoot.core.coordinator.machine import next_tick
from folkmoot.core.coordinator.state import Round
from folkmoot.core.coordinator.view import apply_change, encode_change, view
from support.hashes import fnv1a


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
                self.start(height, samples, numbers(after.round.spans))
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
        assert sorted(self.owed) == numbers(progress.owed)
        assert progress.tokens == SEQ * len(self.attested)


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
                for p in (fnv1a(item, key) % shape.bits for key in shape.keys)
            )
        if votes >= quorum:
            learnt |= set(numbers(share))
    return learnt


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
    assert after.turn >= before.turn
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
    # The owner may want fewer steps in the midst of a round, which counts all the same.
    under_way = bool(before.epoch.rounds and before.round.spans)
    most = max(before.progress.step + under_way, after.run.config.total_steps)
    assert after.progress.step <= most
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
@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink])
@given(runs(), STEPS)
def test_no_list_of_messages_breaks_a_claim(run: Run, steps: list[Step]) -> None:
    play(run, steps)
