"""Properties of the machines over any sequence of events, wise or foolish."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core import federation
from folkmoot.core.federation import Rules
from folkmoot.core.federation import messages as m
from folkmoot.core.federation import participant as part
from folkmoot.core.federation.state import UpperRound
from folkmoot.core.liveness import Liveness
from folkmoot.simulate.audit import Crashed
from folkmoot.simulate.federation.audit import FederationAudit, Opening

ids = st.sampled_from("abcde")
rounds = st.integers(-1, 4)
events = st.one_of(
    st.builds(m.Rendezvous, ids),
    st.builds(m.Rendezvous, ids),
    st.builds(m.Dropped, st.lists(ids, max_size=3).map(tuple)),
    st.builds(m.Delivered, ids, rounds, st.sampled_from("xy"), st.integers(-1, 3)),
    st.builds(m.Delivered, ids, rounds, st.just("x"), st.just(1)),
    st.builds(m.Quarantined, ids, rounds, st.just("bad")),
    st.builds(m.Excused, st.lists(ids, max_size=3).map(tuple), rounds),
    st.builds(m.Lost, st.tuples(st.sampled_from(["0/a", "1/b", "2/c"]))),
    st.builds(m.Tick),
    st.builds(m.Written, rounds, st.just("model")),
)
calls = st.one_of(
    st.builds(m.Called, st.builds(UpperRound, st.integers(0, 6), st.just("model"), rounds, rounds)),
    st.builds(m.Ended),
)
rules = st.builds(
    Rules,
    rounds=st.integers(1, 4),
    min_participants=st.integers(1, 3),
    fraction_participants=st.sampled_from([1.0, 0.6, 0.5]),
    spares=st.integers(0, 2),
    controller=st.sampled_from(["random", "ordered", "all"]),
    over_selection=st.sampled_from([1.0, 1.5]),
    quorum=st.sampled_from([1.0, 0.5]),
    round_deadline=st.sampled_from([0.0, 1.0]),
    max_strikes=st.integers(0, 2),
)


@given(rules, st.booleans(), st.lists(st.tuples(events, st.integers(0, 900)), max_size=60))
def test_invariants_hold_and_the_journal_gives_the_same_bytes(
    rules: Rules, initial: bool, happened: list[tuple[m.Event, int]]
) -> None:
    audit = FederationAudit(Opening(rules, initial))
    now = 0
    for event, passed in happened:
        now += passed
        audit.submit(now, now, event)
    audit.tell(Crashed())
    assert federation.decode(federation.encode(audit.state)) == audit.state


#: Most of what happens to a region makes sense: who is there delivers for the round in progress.
kinds = st.sampled_from(["deliver"] * 8 + ["join"] * 4 + ["call"] * 2 + ["anything", "end"])


@given(rules, st.lists(st.tuples(kinds, ids, st.one_of(events, calls)), min_size=12, max_size=60))
def test_a_region_follows_the_coordinator_above_whatever_happens(
    rules: Rules, happened: list[tuple[str, str, m.Event]]
) -> None:
    audit = FederationAudit(Opening(rules, region=True))
    for now, (kind, id, anything) in enumerate(happened):
        event = {
            "deliver": m.Delivered(id, audit.state.round, "x", 1),
            "join": m.Rendezvous(id),
            "call": m.Called(UpperRound(audit.state.round + 1, f"model {now}", 1, now)),
            "end": m.Ended(),
        }.get(kind, anything)
        audit.submit(100 * now, 100 * now, event)
    audit.tell(Crashed())
    assert federation.decode(federation.encode(audit.state)) == audit.state


@given(st.lists(st.tuples(st.sampled_from(["STANDBY", "ROUND", "FINISHED"]), rounds)))
def test_a_participant_never_trains_a_round_twice(heard: list[tuple[str, int]]) -> None:
    state, trained = part.ParticipantState(), []
    for phase, round_ in heard:
        state, effects = part.apply(state, part.Heard(phase, round_))
        for effect in effects:
            if isinstance(effect, part.Train):
                trained.append(effect.round)
                state, _ = part.apply(state, part.Trained())
    assert trained == sorted(set(trained))


def test_an_expected_update_is_made_again() -> None:
    state, _ = part.apply(part.ParticipantState(trained=3), part.Heard("ROUND", 3, expected=False))
    assert state.phase == part.Phase.WAITING
    state, effects = part.apply(state, part.Heard("ROUND", 3, expected=True))
    assert (state.phase, effects) == (part.Phase.TRAINING, (part.Train(3),))
    state, _ = part.apply(state, part.Failed())
    assert (state.phase, state.trained) == (part.Phase.WAITING, 3)


@given(st.lists(st.tuples(ids, st.integers(0, 40)), max_size=50))
def test_liveness_agrees_with_a_plain_reckoning(heard: list[tuple[str, int]]) -> None:
    liveness, plain, now = Liveness(100), {}, 0
    for id, passed in heard:
        now += passed
        lost = tuple(sorted(who for who, at in plain.items() if at + 100 <= now))
        assert liveness.expired(now) == lost
        for who in lost:
            del plain[who]
        liveness.heard(id, now)
        plain[id] = now
        assert liveness.next_expiry() == min(plain.values()) + 100


def _struck(max_strikes: int, visitors: int) -> federation.State:
    """Many come with a new key each, deliver one bad update and leave."""
    state = federation.create(Rules(rounds=1, max_strikes=max_strikes))
    for number in range(visitors):
        id = f"v{number:03}"
        for event in (m.Rendezvous(id), m.Quarantined(id, 0, "bad"), m.Dropped((id,))):
            state, _ = federation.apply(state, event, number, 7)
    return state


def test_bad_updates_of_those_who_are_gone_are_remembered_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("folkmoot.core.federation.machine.MAX_STRUCK", 5)
    assert len(_struck(max_strikes=3, visitors=4).strikes) == 4
    assert len(_struck(max_strikes=3, visitors=30).strikes) in (5, 6)


def test_bad_updates_are_not_counted_where_nobody_is_expelled() -> None:
    assert _struck(max_strikes=0, visitors=4).strikes == {}
