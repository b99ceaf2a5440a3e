"""Who audits what, and what becomes of many verdicts."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from folkmoot.core.coordinator import Phase
from folkmoot.core.coordinator.assignment import Span, numbers, total
from folkmoot.core.coordinator.audits import (
    AUDITORS,
    SAMPLES_MAX,
    audited_samples,
    auditors,
    duties,
    found,
    others,
)
from folkmoot.core.coordinator.config import CoordinatorConfig, Run
from folkmoot.core.coordinator.standing import ENOUGH_AUDITS, count_audits, is_out
from folkmoot.core.coordinator.state import (
    Client,
    Coordinator,
    Epoch,
    Left,
    Round,
    Witness,
)

SEEDS = st.integers(0, 2**64 - 1)


def run_of(clients: int, percent: int, seed: int = 0, absent: tuple[int, ...] = ()) -> Coordinator:
    """A run in round 7, whose witnesses audit round 5."""
    config = CoordinatorConfig(total_steps=99, verification_percent=percent, delay=1)
    run = Run(run_id="moot", config=config)
    places = tuple(Client(bytes([n]) * 32) for n in range(clients))
    rounds = tuple(
        Round(h, h, seed + h, (Span(h * 100, h * 100 + 2 * clients),), absent) for h in (5, 6, 7)
    )
    epoch = Epoch(clients=places, absent=absent, rounds=rounds)
    return Coordinator(run, Phase.RoundTrain, 0, epoch=epoch)


@given(st.integers(1, 40), st.integers(1, 100), SEEDS.filter(lambda s: s < 2**63), st.data())
def test_auditors_are_witnesses_and_never_audit_themselves(
    clients: int, percent: int, seed: int, data: st.DataObject
) -> None:
    gone = tuple(sorted(data.draw(st.sets(st.integers(0, clients - 1), max_size=clients - 1))))
    state = run_of(clients, percent, seed, gone)
    elected = {state.place(state.round, i) for i in state.committee(state.round).witness_indices()}
    drawn = auditors(state, state.round)
    for maker, who in drawn.items():
        assert maker not in who
        assert set(who) <= elected
        assert len(set(who)) == min(AUDITORS, len(elected - {maker}))
    if len(elected) > 2:
        share = min(len(elected), clients - len(gone)) * percent / 100
        assert share - 1 < len(drawn) < share + 1
    else:
        assert not drawn
    for place in range(clients):
        assert duties(state, state.round, place) == tuple(m for m in drawn if place in drawn[m])


def test_as_many_results_are_audited_as_the_owner_wants() -> None:
    drawn = [len(auditors(state, state.round)) for state in (run_of(7, 10, s) for s in range(2000))]
    assert 0.09 < sum(drawn) / (7 * 2000) < 0.11
    assert not auditors(run_of(7, 0), run_of(7, 0).round)


def test_nothing_is_audited_when_everybody_who_worked_has_left() -> None:
    state = run_of(5, 100)
    work, between, by = state.epoch.rounds
    work = replace(work, spans=(Span(500, 501),))  # one sample: one of them has it
    (worker,) = (state.place(work, i) for i in state.assignment(work).busy().tolist())
    rounds = (work, between, replace(by, absent=(worker,)))
    state = replace(state, epoch=replace(state.epoch, absent=(worker,), rounds=rounds))
    assert auditors(state, state.round) == {}


@given(st.integers(1, 300), SEEDS, SEEDS)
def test_audited_samples_are_some_of_the_share_and_follow_from_the_seed(
    size: int, seed: int, other: int
) -> None:
    share = (Span(10, 10 + size // 2), Span(1000, 1000 + size - size // 2))
    chosen = audited_samples(Round(7, 7, seed), 3, share)
    assert total(chosen) == min(-(-size // 8), SAMPLES_MAX)
    assert set(numbers(chosen)) <= set(numbers(share))
    if size >= 64 and seed != other:
        assert audited_samples(Round(7, 7, other), 3, share) != chosen


def test_a_result_is_compared_with_some_others() -> None:
    assert others(Round(7, 7, 1), 3, [3]) == ()
    chosen = others(Round(7, 7, 1), 3, list(range(9)))
    assert len(chosen) == 4
    assert 3 not in chosen


def audit(state: Coordinator, seed: int, verdict: dict[int, dict[int, bool]]) -> Coordinator:
    """A round in which each auditor says of each maker whether its result passed."""
    out = tuple(sorted(place for place, _ in state.epoch.leaving))
    rounds = tuple(replace(r, seed=seed + r.height, absent=out) for r in state.epoch.rounds)
    state = replace(state, epoch=replace(state.epoch, rounds=rounds))
    by, witnesses = state.round, []
    drawn = auditors(state, by)
    for place in verdict:
        given = [maker for maker, who in drawn.items() if place in who]
        sides = [tuple(p for p in given if verdict[place][p] is side) for side in (True, False)]
        proof = state.committee(by).get_witness(state.index(by, place) or 0)
        witnesses.append(Witness(proof, b"", b"", b"", b"", (), *sides))
    heard = replace(by, witnesses=tuple(witnesses))
    return count_audits(state, *found(state, heard))


def play(
    clients: int, liars: int, fails: list[float], rounds: int, collude: bool, percent: int = 100
) -> tuple[Coordinator, int]:
    """Honest auditors see the truth, which is noisy; liars fail the honest, pass each other. In how
    many rounds the last liar was out."""
    draw, state, last = Random(1), run_of(clients, percent), 0
    for seed in range(0, 10 * rounds, 10):
        truth = {p: draw.random() >= fails[p] for p in range(clients)}
        out = {place for place, _ in state.epoch.leaving}
        said = {}
        for place in set(range(clients)) - out:
            lies = collude and place < liars
            said[place] = {p: p < liars if lies else truth[p] for p in range(clients)}
        state = audit(state, seed, said)
        if len(state.epoch.leaving) > len(out):
            last = seed // 10
    return state, last


def test_honest_clients_of_all_kinds_stay_and_who_trains_something_else_leaves() -> None:
    state, _ = play(6, 1, [0.5, 0.02, 0.1, 0.2, 0.25, 0.2], 1000, collude=False)
    assert state.epoch.leaving == ((0, Left.FailedAudits),)
    assert is_out(state, bytes(32))


def test_liars_that_collude_on_audits_are_ejected_and_nobody_else() -> None:
    state, last = play(10, 3, [0.5] * 3 + [0.2] * 7, 500, collude=True)
    assert {place for place, _ in state.epoch.leaving} == {0, 1, 2}
    assert last < 100


def test_where_audits_tell_nothing_nobody_leaves() -> None:
    state, _ = play(8, 0, [0.5] * 8, 500, collude=False)
    assert state.epoch.leaving == ()


def test_an_accuser_that_is_always_alone_leaves_though_its_results_are_fine() -> None:
    state, last = play(6, 1, [0.1] * 6, 300, collude=True)
    assert state.epoch.leaving == ((0, Left.FailedAudits),)
    assert last < 60


def test_a_few_failed_audits_are_nothing() -> None:
    state = run_of(4, 100)
    for _ in range(ENOUGH_AUDITS - 1):
        state = count_audits(state, (0, 1, 2), (3,), ())
    assert state.epoch.leaving == ()
    state = count_audits(state, (0, 1, 2), (3,), ())
    assert state.epoch.leaving == ((3, Left.FailedAudits),)
    assert [record.id[0] for record in state.audits] == [0, 1, 2]


def test_an_honest_client_with_a_bad_streak_where_audits_are_noisy_stays() -> None:
    """So three honest clients failed in a run on data that nothing was tuned on."""
    state = run_of(3, 100)
    for n in range(42):
        failed = [place for place, fails in enumerate((13, 12, 25)) if n >= 42 - fails]
        state = count_audits(state, [p for p in range(3) if p not in failed], failed, ())
    assert state.epoch.leaving == ()
    for _ in range(20):
        state = count_audits(state, (0, 1), (2,), ())
    assert state.epoch.leaving == ((2, Left.FailedAudits),)
