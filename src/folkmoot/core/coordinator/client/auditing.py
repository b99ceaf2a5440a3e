"""What a witness audits of an earlier round, while the results of this one are on their way.

When its own share is trained it tries the results that the seed gave it (`audits.py`), those among
them that it learnt, and attests once it has its verdicts. A quorum of the others may be faster, as
they have nothing to audit: then it takes half of the time that RoundWitness lasts at most, and
attests without verdicts rather than not at all.
"""

from collections.abc import Iterator

from folkmoot.core.coordinator import audits
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.state import ClientState, Phase
from folkmoot.core.coordinator.client.waiting import has_trained
from folkmoot.core.coordinator.conditions import ms
from folkmoot.core.coordinator.state import Coordinator, Round
from folkmoot.core.coordinator.state import Phase as RunPhase
from folkmoot.core.machine import Effect


def begin(client: ClientState, state: Coordinator, now: int) -> Iterator[Effect]:
    """Audit what is ours to audit in this round, once."""
    current = state.round
    if state.phase is RunPhase.RoundWitness and client.closing[0] != current.height:
        client.closing = (current.height, now + ms(state.run.config.round_witness_time) // 2)
    if not state.run.config.verification_percent or client.auditing == current.height:
        return
    in_time = state.phase is RunPhase.RoundTrain and client.phase is Phase.Ready
    if not in_time or not has_trained(client, current):
        return
    client.auditing, client.verdicts = current.height, None
    trials = tuple(_trials(client, state, current))
    if trials:
        yield c.Audit(client.epoch, current.height, trials)
    else:
        client.verdicts = ((), ())


def under_way(client: ClientState, state: Coordinator, now: int) -> bool:
    """Whether an attestation may still have verdicts in it."""
    begun = client.auditing == state.round.height
    if not begun or client.verdicts is not None:
        return False
    return state.phase is RunPhase.RoundTrain or now < client.closing[1]


def next_look(client: ClientState, now: int) -> list[int]:
    """When an audit has taken too long, if one may."""
    waits = client.auditing == client.closing[0] and client.verdicts is None
    return [client.closing[1]] if waits and client.closing[1] > now else []


def verdicts(client: ClientState, state: Coordinator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The places whose results passed, and failed, in this round."""
    if client.auditing != state.round.height or client.verdicts is None:
        return (), ()
    passed, failed = map(state.places, client.verdicts)
    return passed, failed


def _trials(client: ClientState, state: Coordinator, current: Round) -> Iterator[c.Trial]:
    work, me = audits.audited_round(state, current), state.find(client.id)
    ledger = client.ledgers.get(work.height) if work else None
    by = state.round_at(current.height - 1)
    if ledger is None or by is None or me is None:
        return
    learnt = {state.find(r.sender): r for r in ledger.verdict(state, by).learn}
    results = {place: result for place, result in learnt.items() if place is not None}
    for place in audits.duties(state, current, me):
        beside = audits.others(current, place, sorted(results))
        if place in results and beside:
            result = results[place]
            samples = audits.audited_samples(current, place, ledger.shares[result.sender])
            yield c.Trial(result, samples, tuple(results[other] for other in beside))
