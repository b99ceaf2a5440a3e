"""Any two quorums of the same witnesses share one, for every number a round may have."""

import pytest

from folkmoot.core.quorum import MAX_WITNESSES, witness_quorum


@pytest.mark.parametrize("witnesses", range(1, 200))
def test_any_two_quorums_meet(witnesses: int) -> None:
    quorum = witness_quorum(witnesses)
    assert 1 <= quorum <= witnesses
    assert 2 * quorum > witnesses, "two quorums with nobody in common fit among the witnesses"
    assert quorum >= 2 * witnesses // 3


def test_a_third_that_stays_silent_does_not_stop_a_round() -> None:
    for witnesses in range(3, MAX_WITNESSES + 1):
        silent = (witnesses - 1) // 3
        assert witnesses - silent >= witness_quorum(witnesses)


def test_a_quorum_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one witness, got 0"):
        witness_quorum(0)
