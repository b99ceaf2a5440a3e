"""The three forms of swap-or-not are one permutation."""

from hashlib import sha256

import pytest

from folkmoot.core.shuffle import swap_or_not, swap_or_not_all, swap_or_not_few


@pytest.mark.parametrize("total", [1, 2, 3, 7, 32, 33, 255, 256])
def test_all_at_once_is_one_at_a_time(total: int) -> None:
    seed = sha256(bytes([total % 256])).digest()
    one_at_a_time = [swap_or_not(index, total, seed) for index in range(total)]
    assert list(swap_or_not_few(total, seed)) == one_at_a_time
    assert swap_or_not_all(total, seed).tolist() == one_at_a_time
