"""The public design's known answers: `vectors.json`, and the values its own tests expect.

The few we answer otherwise on purpose are in docs/decisions/001; a test here says how they differ.
"""

import json
import math
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from folkmoot.core import bloom
from folkmoot.core.coordinator.assignment import Assignment, Span, total
from folkmoot.core.coordinator.commitment import commitment_hash
from folkmoot.core.coordinator.committee import (
    Committee,
    CommitteeSelection,
    checkpointer_position,
    is_checkpointer,
)
from folkmoot.core.identity import gossip_topic
from folkmoot.core.merkle import merkle_root
from folkmoot.core.quorum import witness_quorum
from folkmoot.core.schedule import (
    Constant,
    Cosine,
    Linear,
    Schedule,
    WarmupStableDecay,
    batch_size,
)
from folkmoot.core.seed import clock_seed
from folkmoot.core.shuffle import lcg, lcg_shuffle, swap_or_not

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())
WORDS = b"my very eager mother just served us nine pizzas make prime".split()


def numbers(name: str) -> list[int]:
    """The numbers in a vector's name: n16_w4_seed42 gives 16, 4, 42."""
    return [int("".join(filter(str.isdigit, part))) for part in name.split("_")]


def test_every_vector_has_a_test() -> None:
    source = Path(__file__).read_text()
    assert [name for name in VECTORS if f'"{name}"' not in source] == []


def test_the_generator_gives_the_public_numbers() -> None:
    assert lcg(12345, 5) == VECTORS["lcg_12345"]
    assert lcg(0, 3) == VECTORS["lcg_0"]


@pytest.mark.parametrize(("name", "order"), VECTORS["det_shuffle"].items())
def test_the_shuffle_gives_the_public_order(name: str, order: list[int]) -> None:
    count, seed = numbers(name)
    assert lcg_shuffle(count, seed) == order


@pytest.mark.parametrize(("seed", "order"), VECTORS["det_shuffle_1to5"].items())
def test_the_shuffle_of_one_to_five(seed: str, order: list[int]) -> None:
    assert [1 + i for i in lcg_shuffle(5, int(seed))] == order


def test_swap_or_not_moves_each_index_to_its_public_place() -> None:
    answers = VECTORS["swap_or_not"]
    zeros, ones, twos = bytes(32), bytes([1]) * 32, bytes([2]) * 32

    def places(count: int, total: int, seed: bytes) -> list[int]:
        return [swap_or_not(i, total, seed) for i in range(count)]

    assert places(10, 10, zeros) == answers["zero_seed_n10"]
    assert places(20, 100, ones) == answers["ones_seed_n100_first20"]
    assert swap_or_not(5, 100, twos) == answers["twos_seed_n100_idx5"]
    assert swap_or_not(5, 100, ones) == answers["ones_seed_n100_idx5"]
    assert swap_or_not(0, 1, zeros) == answers["zero_seed_n1"]
    assert places(8, 300, zeros) == answers["zero_seed_n300_first8"]


def test_a_committee_of_a_hundred_is_the_public_one() -> None:
    answer = VECTORS["committee_10_20_30_100_12345"]
    selection = CommitteeSelection(10, 20, 30, 100, 12345)
    proofs = [selection.get_committee(i) for i in range(100)]
    witnesses = [selection.get_witness(i) for i in range(100)]

    def members(committee: Committee) -> list[int]:
        return [proof.index for proof in proofs if proof.committee is committee]

    assert selection.seed.hex() == answer["seed_hex"]
    assert [p.position for p in proofs[:20]] == answer["committee_positions_0_19"]
    assert [w.position for w in witnesses[:20]] == answer["witness_positions_0_19"]
    assert selection.witness_indices() == answer["witness_indices"]
    assert [w.index for w in witnesses if w.witness] == answer["witness_indices"]
    assert members(Committee.TieBreaker) == answer["tie_breakers"]
    assert members(Committee.Verifier) == answer["verifiers"]
    assert [len(members(committee)) for committee in Committee] == answer["counts"]


@pytest.mark.parametrize(("name", "answer"), VECTORS["witness_small"].items())
def test_the_witnesses_are_the_public_ones(name: str, answer: dict[str, list[int]]) -> None:
    clients, witnesses, seed = numbers(name)
    selection = CommitteeSelection(0, witnesses, 0, clients, seed)
    assert [selection.get_witness(i).position for i in range(clients)] == answer["positions"]
    assert selection.witness_indices() == answer["witnesses"]


@pytest.mark.parametrize(("name", "capped"), VECTORS["checkpointers_dev"].items())
def test_the_public_checkpointers_are_our_first_sixteen(name: str, capped: list[int]) -> None:
    """The public design stops at 16; a third of the clients, without a cap, is what we elect."""
    clients, seed = numbers(name)
    ours = [i for i in range(clients) if is_checkpointer(i, clients, seed)]
    assert len(ours) == max(1, clients // 3)
    assert [i for i in ours if checkpointer_position(i, clients, seed) < 16] == capped


def test_quorums_are_the_public_ones_but_that_of_four() -> None:
    """Two of four is half: two quorums could disagree. Ours is three."""
    ours = [witness_quorum(n) for n in range(1, 33)]
    differing = {n for n, q in enumerate(VECTORS["quorum_1_32"], 1) if ours[n - 1] != q}
    assert differing == {4}
    assert witness_quorum(4) == 3
    with pytest.raises(ValueError, match="at least one"):
        witness_quorum(0)


def intervals(clients: int, size: int, start: int, seed: int) -> list[list[Any]]:
    """An equal assignment the way the vectors write it: [[first, last], trainer]."""
    shares = Assignment([Span(start, start + size)], seed, range(clients)).shares()
    return [[[share[0].start, share[0].stop - 1], index] for index, share in shares]


@pytest.mark.parametrize(
    ("name", "answer"), [(k, v) for k, v in VECTORS["assign"].items() if "_idx" in k]
)
def test_each_trainer_gets_its_public_samples(name: str, answer: list[Any]) -> None:
    assert intervals(*numbers(name)) == answer


def test_a_batch_that_does_not_divide_is_split_as_in_public() -> None:
    answers = VECTORS["assign"]
    shares = Assignment([Span(0, 384)], 0, range(23)).shares()
    assert [total(share) for _, share in shares] == answers["n23_gbs384_seed0_sizes"]
    assert [index for index, _ in shares] == answers["n23_gbs384_seed0_order"]


@pytest.mark.parametrize(("name", "sizes"), VECTORS["batch_size"].items())
def test_the_batch_ramp_is_the_public_one(name: str, sizes: dict[str, int]) -> None:
    start, end, warmup = numbers(name.removeprefix("consilience_"))
    assert {t: batch_size(int(t), start, end, warmup) for t in sizes} == sizes


def test_bloom_bits_are_the_public_ones() -> None:
    answers = VECTORS["bloom_8x2_keys12"]
    shape = bloom.Shape(8 * 64, (1, 2))
    for name, bits in answers.items():
        item = bytes(numbers(name.removeprefix("pos_").replace(",", "_")))
        assert bloom.positions([item], shape).tolist() == [bits]
    answer = VECTORS["bloom_16x8_keys1to8_sha256(07 00*31)"]
    item = sha256(bytes([7, *[0] * 31])).digest()
    assert item.hex() == answer["hash"]
    shape = bloom.Shape(16 * 64, tuple(range(1, 9)))
    assert bloom.positions([item], shape).tolist() == [answer["positions"]]


def hashed(count: int, salt: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return bloom.as_rows([sha256(salt + i.to_bytes(4, "little")).digest() for i in range(count)])


def test_a_public_filter_errs_as_often_as_it_says_and_ours_stays_near_one_percent() -> None:
    probes = hashed(20_000, b"absent")
    for items, expected in VECTORS["bloom_fpr_1024bits_k8"].items():
        held = hashed(int(items), b"held")
        public = bloom.Shape(1024, (*bloom.bloom_shape(1, 5, 5).keys, 99))
        rate = bloom.holds(bloom.fill(held, public), probes, public).mean()
        # Four standard deviations of the probes, and how far one filter's fill is from the mean.
        assert rate == pytest.approx(expected, abs=4 * math.sqrt(expected / 20_000) + expected / 3)
        ours = bloom.bloom_shape(int(items), 5, 5)
        assert bloom.holds(bloom.fill(held, ours), probes, ours).mean() < 0.015


def test_merkle_roots_are_the_public_ones() -> None:
    answers = VECTORS["merkle"]
    assert merkle_root([b"test"]).hex() == answers["one_leaf_test"]
    assert merkle_root(WORDS).hex() == answers["eleven_words"]
    assert merkle_root([b"a", b"b"]).hex() == answers["two"]
    assert merkle_root([b"a", b"b", b"c"]).hex() == answers["three"]


def test_hashes_and_seeds_are_the_public_ones() -> None:
    assert gossip_topic("test").hex() == VECTORS["gossip_topic_test"]
    assert clock_seed(1_700_000_000, 1) == VECTORS["solana_seed_ts1700000000_slot1"]
    result = commitment_hash(1, [Span(0, 4)], b"\x00\x01", b"\xff")
    assert result.hex() == VECTORS["distro_hash_step1_b0_3_idx0001_valff"]


@pytest.mark.parametrize(
    ("tie_breakers", "witnesses", "percent", "counts"),
    [
        (10, 20, 30, [10, 27, 63]),
        (10, 5, 20, [10, 18, 72]),
        (100, 5, 20, [100, 0, 0]),
        (10, 5, 0, [10, 0, 90]),
    ],
)
def test_committees_have_the_sizes_the_public_tests_expect(
    tie_breakers: int, witnesses: int, percent: int, counts: list[int]
) -> None:
    selection = CommitteeSelection(tie_breakers, witnesses, percent, 100, 12345)
    found = [selection.get_committee(i).committee for i in range(100)]
    assert [found.count(committee) for committee in Committee] == counts
    assert sum(selection.get_witness(i).witness for i in range(100)) == witnesses


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((10, 5, 20, 9, 1), "10 tie breakers among 9 clients"),
        ((10, 50, 20, 11, 1), "50 witnesses among 11 clients"),
        ((10, 5, 101, 100, 1), "verification_percent is 101"),
    ],
)
def test_an_impossible_committee_is_refused(arguments: tuple[int, ...], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        CommitteeSelection(*arguments)


@pytest.mark.parametrize(
    ("clients", "size", "sizes"),
    [(4, 100, [25] * 4), (23, 384, [17] * 16 + [16] * 7), (5, 13, [3, 3, 3, 2, 2])],
)
def test_shares_have_the_sizes_the_public_tests_expect(
    clients: int, size: int, sizes: list[int]
) -> None:
    shares = Assignment([Span(0, size)], 99, range(clients)).shares()
    assert [total(share) for _, share in shares] == sizes


WARM = {"base_lr": 0.01, "warmup_steps": 10, "warmup_init_lr": 0.001}
WSD: dict[str, Any] = {
    "stable_steps": 60,
    "cosine_decay_steps": 110,
    "cosine_decay_final_lr": 0.001,
    "linear_decay_steps": 20,
}


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (Constant(**WARM), {0: 0.001, 5: 0.0055, 9: 0.0091, 10: 0.01, 999: 0.01}),
        (
            Linear(**WARM, total_steps=100, final_lr=0.0001),
            {55: 0.00505, 100: 0.0001, 200: 0.0001},
        ),
        (Cosine(**WARM, total_steps=110), {10: 0.01, 60: 0.005, 110: 0.0, 500: 0.0}),
        (
            WarmupStableDecay(**WARM, **WSD),
            {69: 0.01, 70: 0.01, 125: 0.0055, 180: 0.001, 190: 0.0005, 200: 0.0, 300: 0.0},
        ),
        (
            WarmupStableDecay(**WARM, **dict.fromkeys(WSD, 0), linear_decay_final_lr=0.0),
            {0: 0.001},
        ),
    ],
    ids=["constant", "linear", "cosine", "warmup_stable_decay", "of no length"],
)
def test_learning_rates_are_those_the_public_tests_expect(
    schedule: Schedule, rates: dict[int, float]
) -> None:
    assert {step: schedule.lr(step) for step in rates} == pytest.approx(rates, abs=1e-12)
