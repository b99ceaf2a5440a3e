"""Learning rates and batch sizes over the whole of a run."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.schedule import Constant, Cosine, Linear, Schedule, WarmupStableDecay, batch_size

SIZES = st.integers(1, 2**31 - 1)
TOKENS = st.integers(0, 2**53)


@given(SIZES, SIZES, TOKENS, TOKENS, TOKENS)
def test_the_batch_never_shrinks_and_stays_within_its_ends(
    a: int, b: int, warmup: int, early: int, late: int
) -> None:
    start, end = sorted((a, b))
    early, late = sorted((early, late))
    sizes = [batch_size(tokens, start, end, warmup) for tokens in (early, late)]
    assert start <= sizes[0] <= sizes[1] <= end
    assert batch_size(warmup, start, end, warmup) == end
    if warmup:
        assert batch_size(0, start, end, warmup) == start


@given(SIZES, st.integers(0, 10**6), st.integers(1, 2**53), st.data())
def test_the_ramp_is_the_exact_line_with_half_rounded_up(
    start: int, gain: int, warmup: int, data: st.DataObject
) -> None:
    tokens = data.draw(st.integers(0, warmup - 1))
    exact = start + Fraction(gain * tokens, warmup)
    size = batch_size(tokens, start, start + gain, warmup)
    assert size - Fraction(1, 2) <= exact < size + Fraction(1, 2)


RATES = st.floats(1e-8, 1.0)
COUNTS = st.integers(0, 200)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    base = draw(RATES)
    below = st.floats(0.0, base)
    warm = {
        "base_lr": base,
        "warmup_steps": draw(COUNTS),
        "warmup_init_lr": draw(below),
    }
    total = draw(st.integers(0, 500))
    kind = draw(st.sampled_from(["constant", "linear", "cosine", "wsd"]))
    if kind == "constant":
        return Constant(**warm)
    if kind == "linear":
        return Linear(**warm, total_steps=total, final_lr=draw(below))
    if kind == "cosine":
        return Cosine(**warm, total_steps=total, final_lr=draw(below))
    middle = draw(below)
    return WarmupStableDecay(
        **warm,
        stable_steps=draw(COUNTS),
        cosine_decay_steps=draw(COUNTS),
        cosine_decay_final_lr=middle,
        linear_decay_steps=draw(COUNTS),
        linear_decay_final_lr=draw(st.floats(0.0, middle)),
    )


@given(schedules())
def test_a_rate_climbs_to_its_base_and_only_falls_after(schedule: Schedule) -> None:
    warm = schedule.warmup_steps
    rates = [schedule.lr(step) for step in range(warm + 700)]
    slack = schedule.base_lr * 1e-9
    assert all(-slack <= rate <= schedule.base_lr + slack for rate in rates)
    assert all(a <= b + slack for a, b in pairwise(rates[:warm]))
    assert all(a >= b - slack for a, b in pairwise(rates[warm:]))


def test_a_schedule_meets_itself_at_its_joints() -> None:
    schedule = WarmupStableDecay(
        base_lr=1.0,
        warmup_steps=10,
        stable_steps=20,
        cosine_decay_steps=1000,
        cosine_decay_final_lr=0.5,
        linear_decay_steps=1000,
    )
    for joint in (10, 30, 1030, 2030):
        assert schedule.lr(joint) == pytest.approx(schedule.lr(joint - 1), abs=0.11)
