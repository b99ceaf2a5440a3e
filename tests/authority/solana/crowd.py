"""An epoch of so many clients on the virtual machine, from the first join to the next epoch."""

from hashlib import sha256

from solders.account import Account

from authority.solana import differential
from authority.solana.differential import ROOT, Pair
from authority.solana.vm import Vm
from folkmoot.authority.solana.seeds import HashChain
from folkmoot.core import bloom
from folkmoot.core.coordinator import Coordinator, Phase
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model, Run
from folkmoot.core.coordinator.health import participant_item

IN_ROUND = (Phase.RoundTrain, Phase.RoundWitness)


def attest(state: Coordinator, index: int, seen: list[bytes]) -> m.OpportunisticWitness:
    current = state.round
    items = [participant_item(identity) for identity in seen]
    bits = bloom.fill(items, state.bloom_shape(current, index))
    sender = state.epoch.clients[state.place(current, index)].id
    proof = state.committee(current).get_witness(index)
    where = (state.epoch_number, current.height)
    return m.OpportunisticWitness(sender, *where, proof, bits, bits, bytes(32), b"m" * 32)


def play_epoch(vm: Vm, template: Account, clients: int) -> Pair:
    """`units` of what it gives has the most that each kind of message has cost."""
    ids = sorted(sha256(b"many" + bytes([n])).digest() for n in range(clients))
    differential.CHAINS.update({identity: HashChain(identity, 50) for identity in ids})
    config = CoordinatorConfig(
        total_steps=50,
        min_clients=clients,
        max_clients=256,
        rounds_per_epoch=4,
        global_batch_size_start=1500,
        cooldown_time=5.0,
    )
    run = Run(run_id="run", config=config, model=Model(checkpoint=ROOT))
    pair = Pair(vm, run, template, ids)
    for identity in ids:
        pair.say(m.Join(identity, "run", b"", b"x" * 200))
    for number, identity in enumerate(ids):
        pair.say(m.HealthCheck(identity, (), 100 + 7 * number))
    caller = differential.elected(pair.core)[0]
    gone = tuple(identity for identity in ids if identity != caller)[:2]
    assert pair.core.election is not None
    pair.say(m.CallGone(caller, 0, pair.core.election.height, gone))
    for identity in ids:
        pair.say(m.Ready(identity, 0))
    _train(pair, ids)
    for identity in ids:
        if pair.core.phase is Phase.Cooldown:
            said = (identity, 0, ROOT + "step", pair.core.model_hash)
            pair.say(m.OpportunisticCooldown(*said))
    pair.leap(1)
    pair.say(m.Tick())
    pair.say(m.Withdraw(ids[0]))
    return pair


def _train(pair: Pair, ids: list[bytes]) -> None:
    """Rounds until the epoch is over. Two lose forty results; of the second a witness is silent."""
    while pair.core.phase in IN_ROUND:
        height = pair.core.round.height
        seen = ids[40:] if height in (1, 2) else ids
        silent = height == 2 and len(ids) > 1
        indices = pair.core.committee(pair.core.round).witness_indices()
        for index in indices[: -1 if silent else None]:
            pair.say(attest(pair.core, index, seen))
        while pair.core.phase in IN_ROUND and pair.core.round.height == height:
            pair.leap(None if silent else 0)
            pair.say(m.Tick())
