from collections.abc import Iterator

import pytest
from solders.account import Account

from authority.solana.differential import whole_template
from authority.solana.vm import Vm


@pytest.fixture(scope="module")
def vm() -> Vm:
    return Vm()


@pytest.fixture(scope="module")
def template(vm: Vm) -> Iterator[Account]:
    """An account of run "run" that is grown and not configured."""
    return whole_template(vm)
