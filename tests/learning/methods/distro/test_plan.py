import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.learning.methods.distro.plan import largest_divisor, make_plan
from folkmoot.learning.methods.distro.reference import gather, scatter


@pytest.mark.parametrize(
    ("n", "target", "expected"),
    [(12, 3, 3), (12, 5, 4), (100, 7, 5), (100, 26, 25), (100, 101, 100),
     (1_000_000_007, 500_000_000, 1), (0, 1, 0)],
)  # fmt: skip
def test_the_divisor_rule_gives_the_public_designs_answers(n, target, expected):
    assert largest_divisor(n, target) == expected


@given(st.integers(1, 3000), st.integers(1, 300))
def test_the_divisor_rule_agrees_with_trying_them_all(n, target):
    assert largest_divisor(n, target) == max(d for d in range(1, min(n, target) + 1) if n % d == 0)


shapes = st.lists(st.lists(st.integers(1, 32), max_size=3).map(tuple), min_size=1, max_size=6)


@given(shapes, st.sampled_from([4, 16, 64]))
def test_every_weight_is_in_exactly_one_chunk(shapes, chunk):
    plan = make_plan([(f"p{i}", s) for i, s in enumerate(shapes)], chunk, 8, 1)
    seen = np.zeros(plan.size, int)
    for g in plan.groups:
        for c in range(g.first, g.first + g.count):
            rows = plan.offset[c] + plan.stride[c] * np.arange(g.h)
            seen[(rows[:, None] + np.arange(g.w)).reshape(-1)] += 1
    assert (seen == 1).all()


@given(shapes)
def test_gather_and_scatter_are_each_others_reverse_and_follow_the_tables(shapes):
    plan = make_plan([(f"p{i}", s) for i, s in enumerate(shapes)], 16, 8, 1)
    flat = torch.arange(plan.size, dtype=torch.float32)
    copy = torch.full_like(flat, -1)
    for number, g in enumerate(plan.groups):
        chunks = gather(plan, flat, number)
        where = slice(g.first, g.first + g.count)
        assert (chunks[:, 0, 0].numpy() == plan.offset[where]).all()
        scatter(plan, copy, number, chunks)
    assert torch.equal(copy, flat)


def test_chunks_of_one_shape_share_a_group_and_a_vector_is_cut_in_rows():
    plan = make_plan([("a", (128, 64)), ("b", (128,)), ("c", (2, 64, 64)), ("d", ())], 64, 8, 1)
    found = {(g.h, g.w): (g.count, g.k, g.index_bits) for g in plan.groups}
    assert found == {(64, 64): (4, 8, 12), (1, 64): (2, 8, 6), (1, 1): (1, 1, 0)}


def test_plans_that_differ_have_different_fingerprints():
    plans = [
        make_plan([("a", (8, 8))], 64, 4, 1),
        make_plan([("b", (8, 8))], 64, 4, 1),
        make_plan([("a", (64,))], 64, 4, 1),
        make_plan([("a", (8, 8))], 4, 4, 1),
        make_plan([("a", (8, 8))], 64, 5, 1),
        make_plan([("a", (8, 8))], 64, 4, 16),
    ]
    assert len({p.fingerprint for p in plans}) == len(plans)
