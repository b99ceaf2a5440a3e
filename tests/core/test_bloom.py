"""Bloom filters: equal to a set of bits filled by hand, never a false no, seldom a false yes."""

from hashlib import sha256
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core import bloom
from support.hashes import fnv1a

ITEMS = st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=60)


def plain_bits(items: list[bytes], shape: bloom.Shape) -> set[int]:
    return {fnv1a(item, key) % shape.bits for item in items for key in shape.keys}


def plain_bytes(bits: set[int], size: int) -> bytes:
    return sum(1 << bit for bit in bits).to_bytes(size // 8, "little")


@given(ITEMS, ITEMS, st.integers(0, 2**64 - 1), st.integers(0, 2**32))
def test_a_filter_is_the_plain_one(
    held: list[bytes], asked: list[bytes], seed: int, owner: int
) -> None:
    shape = bloom.bloom_shape(len(held), seed, owner)
    bits = plain_bits(held, shape)
    filled = bloom.fill(held, shape)
    assert filled == plain_bytes(bits, shape.bits)
    expected = [plain_bits([item], shape) <= bits for item in [*held, *asked]]
    assert bloom.holds(filled, [*held, *asked], shape).tolist() == expected
    assert all(expected[: len(held)])
    assert not bloom.overfull(filled, len(held))


@given(ITEMS, st.randoms())
def test_the_order_of_items_does_not_matter(items: list[bytes], random: Random) -> None:
    shape = bloom.bloom_shape(len(items), 1, 2)
    shuffled = list(items)
    random.shuffle(shuffled)
    assert bloom.fill(items, shape) == bloom.fill(shuffled, shape)


@given(st.integers(1, 100_000))
def test_a_filter_has_the_bits_that_one_percent_takes(items: int) -> None:
    bits = bloom.bloom_bits(items)
    assert bits % 64 == 0
    assert 0 <= bits - items * 9.585 < 64 + items * 1e-3
    rate = (1 - (1 - 1 / bits) ** (bloom.KEYS * items)) ** bloom.KEYS
    assert rate <= 0.0101


def test_a_filter_of_ones_is_overfull() -> None:
    for items in (1, 2, 5, 9, 100, 10_000):
        assert bloom.overfull(b"\xff" * (bloom.bloom_bits(items) // 8), items)


def test_the_keys_follow_from_the_seed_and_differ_between_witnesses() -> None:
    shapes = {bloom.bloom_shape(10, seed, owner) for seed in range(8) for owner in range(8)}
    assert len({shape.keys for shape in shapes}) == 64
    assert bloom.bloom_shape(10, 3, 4) in shapes


def test_two_witnesses_do_not_err_alike() -> None:
    """So a quorum of false hits is out of reach of chance."""
    held = [sha256(bytes([1, i])).digest()[:8] for i in range(100)]
    absent = bloom.as_rows([sha256(b"no" + i.to_bytes(2, "big")).digest()[:8] for i in range(9999)])
    wrong = []
    for owner in range(2):
        shape = bloom.bloom_shape(100, 7, owner)
        wrong.append(bloom.holds(bloom.fill(held, shape), absent, shape))
    assert 20 < wrong[0].sum() < 250
    assert (wrong[0] & wrong[1]).sum() < 10
