"""Any threshold of shares rebuilds a secret; fewer say nothing about it."""

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.federated.secure import shamir

secrets = st.binary(min_size=32, max_size=32)


def pseudo(seed):
    return random.Random(seed).randbytes


@given(secrets, st.integers(1, 6), st.integers(0, 3), st.integers())
def test_every_choice_of_threshold_shares_rebuilds_the_secret(secret, threshold, more, seed):
    count = threshold + more
    shares = dict(enumerate(shamir.deal(secret, threshold, count, pseudo(seed)), 1))
    for chosen in combinations(shares, threshold):
        assert shamir.rebuild({x: shares[x] for x in chosen}) == secret


def test_one_share_too_few_fits_any_other_secret():
    """With threshold − 1 shares every secret is as possible as the true one."""
    shares = dict(enumerate(shamir.deal(b"a" * 32, 3, 5, pseudo(1)), 1))
    for other in (b"b" * 32, bytes(32), b"\xff" * 32):
        # The line through two shares and (0, other): solve for holder 5's share.
        known = {0: int.from_bytes(other, "little")} | {
            x: int.from_bytes(shares[x], "little") for x in (1, 2)
        }
        fifth = interpolate(known, 5).to_bytes(shamir.SHARE_BYTES, "little")
        assert shamir.rebuild({1: shares[1], 2: shares[2], 5: fifth}) == other


def interpolate(points, at):
    total = 0
    for x, y in points.items():
        top = bottom = 1
        for other in points:
            if other != x:
                top = top * (at - other) % shamir.PRIME
                bottom = bottom * (x - other) % shamir.PRIME
        total += y * top * pow(bottom, -1, shamir.PRIME)
    return total % shamir.PRIME


def test_a_wrong_share_does_not_rebuild_the_secret():
    shares = dict(enumerate(shamir.deal(b"a" * 32, 2, 3, pseudo(1)), 1))
    shares[1] = (int.from_bytes(shares[1], "little") ^ 1).to_bytes(33, "little")
    assert shamir.rebuild({x: shares[x] for x in (1, 2)}) != b"a" * 32


def test_shares_that_give_no_secret_are_refused():
    # The line through (1, 0) and (2, 1) meets zero at −1, which is no 32-byte number.
    with pytest.raises(ValueError, match="do not belong"):
        shamir.rebuild({1: bytes(33), 2: b"\x01" + bytes(32)})


def test_the_modulus_is_prime():
    from sympy import isprime

    assert isprime(shamir.PRIME)


@pytest.mark.parametrize(("threshold", "holders"), [(0, 3), (4, 3)])
def test_an_impossible_threshold_is_refused(threshold, holders):
    with pytest.raises(ValueError, match="threshold"):
        shamir.deal(bytes(32), threshold, holders, pseudo(0))
