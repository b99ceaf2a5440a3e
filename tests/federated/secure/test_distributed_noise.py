"""Private sums that no coordinator is trusted with: clipped, noisy and masked by the members."""

import math

import numpy as np
import pytest

from federated.secure.test_secure_federation import Pulls, config, federate, final
from folkmoot.federated import Policy
from folkmoot.federated.aggregate.accountant import epsilon
from folkmoot.federated.aggregate.private import Private
from folkmoot.federated.coordinator.events import Aggregated, Reported
from folkmoot.federated.model_file.memory import MemoryModel
from folkmoot.federated.participant.policy import NotAgreed
from folkmoot.federated.secure.config import SecureConfig
from folkmoot.federated.secure.distributed_noise import PrivateSum, write_noisy
from folkmoot.federated.secure.fixed_point import decode
from folkmoot.federated.secure.masked_update import masked_layout
from folkmoot.federated.secure.participant_attempt import least_threshold, most_colluders
from support.federation import logged
from support.hostile import Counts, HostileCoordinator, meet

PRECISION = SecureConfig().precision
SIZE = 40_000
BASE = MemoryModel({"w": np.zeros(SIZE, np.float32), "n": np.zeros(3, np.int64)})


def upload(step: float, rules: PrivateSum, honest: int, secret: bytes) -> np.ndarray:
    """What a member sends before its masks, as real numbers."""
    arrays = {"w": np.full(SIZE, step, np.float32), "n": np.arange(3)}
    out = MemoryModel.empty(masked_layout(BASE.layout))
    write_noisy(MemoryModel(arrays), BASE, rules, honest, secret, [], out)
    assert not out.arrays["n"].any()
    return decode(out.arrays["w"].view(np.uint64), 1, PRECISION)


@pytest.mark.parametrize("count", [3, 5, 9])
def test_the_honest_who_stay_make_all_the_noise_that_is_accounted_for(count: int) -> None:
    """The least that can happen: a threshold stays, and everybody who may collude does."""
    rules, honest = PrivateSum(2.0, 1.5, PRECISION), least_threshold(count) - most_colluders(count)
    total = sum(upload(0.0, rules, honest, bytes([i]) * 32) for i in range(honest))
    assert np.std(total) == pytest.approx(1.5 * 2.0, rel=0.03)
    assert abs(np.mean(total)) < 5 * 3.0 / math.sqrt(SIZE)


@pytest.mark.parametrize("step", [1e-3, 0.1, 1e6, -3e38])
def test_a_step_is_within_the_norm_also_when_it_is_rounded(step: float) -> None:
    rules, secret = PrivateSum(1.0, 0.01, PRECISION), b"s" * 32
    moved = upload(step, rules, 1, secret)
    quiet = moved.mean()  # the noise averages out to 0.01 / 200
    norm = abs(quiet) * math.sqrt(SIZE)
    expected = min(1.0, abs(step) * math.sqrt(SIZE))
    assert norm == pytest.approx(expected, abs=0.05)


def test_noise_belongs_to_one_update() -> None:
    """The same again is the same; another one shows nothing by its difference."""
    rules, secret = PrivateSum(1.0, 1.0, PRECISION), b"s" * 32
    first, again = (upload(1e-4, rules, 3, secret) for _ in range(2))
    other = upload(2e-4, rules, 3, secret)
    np.testing.assert_array_equal(first, again)
    assert np.std(other - first) == pytest.approx(math.sqrt(2 / 3), rel=0.03)


def test_what_no_grid_can_hold_is_refused() -> None:
    assert "too coarse" in PrivateSum(1e-5, 1.0, PRECISION).wrong(4, 4)
    assert "limit" in PrivateSum(1000.0, 1.0, PRECISION).wrong(4, 4)
    assert "64 bits" in PrivateSum(100.0, 1e5, PRECISION).wrong(4, 4096)
    assert not PrivateSum(1.0, 1.0, PRECISION).wrong(4096, 4096)
    with pytest.raises(ValueError, match="too small for"):
        upload(1.0, PrivateSum(1e-6, 1.0, PRECISION), 1, b"s" * 32)
    with pytest.raises(ValueError, match="not a number"):
        upload(math.nan, PrivateSum(1.0, 1.0, PRECISION), 1, b"s" * 32)


async def test_a_private_masked_federation_spends_what_the_accountant_says(tmp_path) -> None:
    strategy = Private(clip_norm=1.0, noise_multiplier=2.0)
    people = [Pulls(number) for number in range(4)]
    await federate(tmp_path, config(tmp_path, True, strategy), people)
    spent = [record.figures["epsilon"] for record in logged(tmp_path / "state", Aggregated)]
    assert spent == [epsilon(2.0, 1, 1e-5), epsilon(2.0, 2, 1e-5)]
    # Nobody tells how much it has.
    assert {record.samples for record in logged(tmp_path / "state", Reported)} == {1}
    # 4 members, threshold 3, 1 colluder: each adds half of the variance of a sum.
    per_round = 2.0 * math.sqrt(4 / 2) / 4
    assert np.std(final(tmp_path)) == pytest.approx(per_round * math.sqrt(2), rel=0.15)


async def test_a_sum_with_less_noise_than_asked_for_trains_nothing(tmp_path) -> None:
    def twist(method, request, answer):
        if method == "StartTrainingRound":
            rules = answer.fixed_point
            rules.limit, rules.fraction_bits, rules.max_samples = 128.0, 24, 100
            rules.clip_norm, rules.noise_multiplier = 1.0, 0.5

    hostile, one = HostileCoordinator(tmp_path / "bucket", twist), Counts()
    policy = Policy(buckets=("all",), masking=True, least_noise=1.0)
    with pytest.raises(NotAgreed, match="least_noise"):
        await meet(hostile, policy, one)
    assert one.trained == 0
