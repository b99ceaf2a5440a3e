"""What instructions cost at the sizes that count; `make bench-solana` fills the page from it."""

import pytest
from solders.account import Account

from authority.solana.crowd import play_epoch
from authority.solana.vm import Vm

GOAL = 400_000  # of 1.4 million that a transaction may use


@pytest.mark.parametrize("clients", [1, 64, 256])
def test_every_instruction_stays_far_below_the_ceiling(
    vm: Vm, template: Account, clients: int
) -> None:
    pair = play_epoch(vm, template, clients)
    print(clients, dict(sorted(pair.units.items())))
    assert pair.core.epoch_number >= 1
    assert max(pair.units.values()) < GOAL
