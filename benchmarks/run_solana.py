"""What a run on Solana costs: compute units of every instruction, rent, and fees of a long run.

    python benchmarks/run_solana.py

An epoch of 1, 64 and 256 clients is played on the virtual machine (LiteSVM), and beside it in the
core, which must agree. Of each instruction the most counts that it took, with all that follows from
it: the last `JoinRun` begins an epoch, the last `WarmupReady` a round, and the last `Witness` or a
`Tick` judges one and begins the next. Fees are what a balance had less after a message.

Goals: no instruction takes 400,000 compute units, and most stay below 200,000.
"""

import statistics
import sys
from pathlib import Path
from typing import Any

import results
from folkmoot.authority.solana import instructions as say
from folkmoot.authority.solana import layout
from folkmoot.authority.solana.layout import Tag

# In place of this folder, whose core.py hides the tests of the core.
sys.path[0] = str(Path(__file__).parent.parent / "tests")
from authority.solana.crowd import play_epoch  # noqa: E402
from authority.solana.differential import Pair, whole_template  # noqa: E402
from authority.solana.vm import OWNER, Vm  # noqa: E402

SIZES = {"1 client": 1, "64": 64, "256": 256}
NAMES = {
    "Join": "JoinRun", "Ready": "WarmupReady", "OpportunisticWitness": "Witness",
    "HealthCheck": "HealthCheck", "CallGone": "CallGone", "OpportunisticCooldown": "Checkpoint",
    "Withdraw": "Withdraw", "Tick": "Tick",
}  # fmt: skip
GOAL, GOAL_OF_MOST = 400_000, 200_000
ROUNDS, WITNESSES, CLIENTS, EPOCHS = 1000, 32, 64, 8


def units(pairs: dict[str, Pair]) -> dict[str, dict[str, int]]:
    return {
        f"`{name}`": {size: pair.units[kind] for size, pair in pairs.items()}
        for kind, name in NAMES.items()
    }


def fee(vm: Vm, pair: Pair) -> int:
    """Lamports that a message costs whoever sends it."""
    before = vm.svm.get_balance(OWNER) or 0
    assert not pair.there.tell(OWNER, say.said(Tag.SetPaused, paused=1)).error
    return before - (vm.svm.get_balance(OWNER) or 0)


def long_run(one: int) -> dict[str, Any]:
    """A run of 64 clients in 8 epochs, all of them heard of in each, one tick a round."""
    messages = {
        "proofs": ROUNDS * WITNESSES,
        "ticks": ROUNDS,
        "joins": CLIENTS,
        "ready": CLIENTS * EPOCHS,
        "checkpoints": EPOCHS,
    }
    count = sum(messages.values())
    return {"messages": count, "lamports": count * one, "SOL": count * one / 1e9}


def main() -> None:
    vm = Vm()
    template = whole_template(vm)
    pairs = {size: play_epoch(vm, template, clients) for size, clients in SIZES.items()}
    table = units(pairs)
    one = fee(vm, pairs["256"])
    account = {
        "bytes": layout.RUN.itemsize,
        "steps": len(layout.GROWN),
        "rent": vm.svm.minimum_balance_for_rent_exemption(layout.RUN.itemsize),
        "fee": one,
        "an hour of signs of life": 120 * one,
    }
    most = [max(row.values()) for row in table.values()]
    for name, row in table.items():
        print(name, row)
    print(account, long_run(one))
    print(f"the most is {max(most):,}; goal {GOAL:,}: {results.GOALS[max(most) < GOAL]}")
    middle = statistics.median(most)
    met = results.GOALS[middle < GOAL_OF_MOST]
    print(f"half stay below {middle:,.0f}; goal {GOAL_OF_MOST:,}: {met}")
    figures = {"units": table, "account": account, "long run": long_run(one)}
    results.write("run_solana", "make bench-solana", figures)


if __name__ == "__main__":
    main()
