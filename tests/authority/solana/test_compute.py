"""What instructions cost at the sizes that count: no tick or proof comes near to the ceiling.

python -m pytest tests/authority/solana/test_compute.py -s     # prints the table of the docs
"""

from hashlib import sha256

import pytest
from solders.account import Account

from authority.solana import differential
from authority.solana.differential import ROOT, Pair
from authority.solana.vm import Vm
from folkmoot.authority.solana.seeds import Chain
from folkmoot.core import bloom
from folkmoot.core.coordinator import Coordinator, Phase
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model, Run
from folkmoot.core.coordinator.health import participant_item

GOAL = 400_000  # of 1.4 million that a transaction may use
IN_ROUND = (Phase.RoundTrain, Phase.RoundWitness)


def attest(state: Coordinator, index: int, seen: list[bytes]) -> m.OpportunisticWitness:
    current = state.round
    items = [participant_item(identity) for identity in seen]
    bits = bloom.fill(items, state.bloom_shape(current, index))
    sender = state.epoch.clients[state.place(current, index)].id
    proof = state.committee(current).get_witness(index)
    where = (state.epoch_number, current.height)
    return m.OpportunisticWitness(sender, *where, proof, bits, bits, bytes(32), b"m" * 32)


def train(pair: Pair, ids: list[bytes]) -> None:
    """Rounds until the epoch is over; of one of them forty results are lost."""
    while pair.core.phase in IN_ROUND:
        lost = pair.core.round.height == 1
        seen = ids[40:] if lost else ids
        for index in pair.core.committee(pair.core.round).witness_indices():
            if pair.core.phase in IN_ROUND:
                pair.say(attest(pair.core, index, seen))
        if pair.core.phase is Phase.RoundWitness:
            pair.say(m.Tick())


@pytest.mark.parametrize("clients", [1, 64, 256])
def test_every_instruction_stays_far_below_the_ceiling(
    vm: Vm, template: Account, clients: int
) -> None:
    ids = sorted(sha256(b"many" + bytes([n])).digest() for n in range(clients))
    differential.CHAINS.update({identity: Chain(identity, 50) for identity in ids})
    config = CoordinatorConfig(
        total_steps=50,
        min_clients=clients,
        max_clients=256,
        rounds_per_epoch=3,
        global_batch_size_start=1500,
        cooldown_time=5.0,
    )
    run = Run(run_id="run", config=config, model=Model(checkpoint=ROOT))
    pair = Pair(vm, run, template, ids)
    for identity in ids:
        pair.say(m.Join(identity, "run", b"", b"x" * 200))
    for number, identity in enumerate(ids):
        pair.say(m.HealthCheck(identity, (), 100 + 7 * number))
    gone = tuple(ids[1:3])
    for identity in ids[3:4]:
        pair.say(
            m.CallGone(identity, 0, pair.core.election.height if pair.core.election else 0, gone)
        )
    for identity in ids:
        pair.say(m.Ready(identity, 0))
    train(pair, ids)
    for identity in ids:
        if pair.core.phase is Phase.Cooldown:
            said = (identity, 0, ROOT + "step", pair.core.model_hash)
            pair.say(m.OpportunisticCooldown(*said))
    pair.leap(1)
    pair.say(m.Tick())
    for identity in ids[:1]:
        pair.say(m.Withdraw(identity))
    print(clients, dict(sorted(pair.units.items())))
    assert pair.core.epoch_number >= 1
    assert max(pair.units.values()) < GOAL
