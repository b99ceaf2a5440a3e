"""What a client does: in a run that goes well, with lost messages, lies and late work."""

from collections import Counter
from hashlib import sha256
from itertools import pairwise

import pytest
from msgspec.structs import replace

from folkmoot.core import bloom
from folkmoot.core.bloom import bloom_shape
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.client import machine
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.ledger import Attested, Result
from folkmoot.core.coordinator.client.state import Phase as ClientPhase
from folkmoot.core.coordinator.commitment import commitment_hash
from folkmoot.core.coordinator.state import STORED_ROUNDS, Phase
from support.memory_run import MemoryRun, finished


@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize("clients", [1, 2, 3, 5])
def test_a_run_finishes_and_everyone_holds_the_same_model(delay: int, clients: int) -> None:
    run = MemoryRun(clients, delay=delay)
    run.run_until(finished)
    assert run.state.progress.step == 6
    assert run.judged() == (72, 0)
    assert run.state.progress.data_index == 72
    assert len({run.model_hash(who) for who in run.clients}) == 1
    assert run.model_hash(next(iter(run.clients))) == run.state.model_hash
    assert all(len(learnt) == 6 * clients for learnt in run.learnt.values())


def test_nothing_is_refused_when_nobody_lies() -> None:
    run = MemoryRun(4, delay=1)
    run.run_until(finished)
    assert [e for e in run.effects if isinstance(e, m.Refused)] == []


def test_a_result_that_never_came_is_asked_for() -> None:
    """One client hears nothing from its peers; it still learns what the witnesses saw."""
    run = MemoryRun(4, delay=1, witness_nodes=2)
    deaf = next(iter(run.clients))
    asked = []

    def lose(who: bytes, action: c.Effect) -> bool:
        asked.extend([action] if isinstance(action, c.Ask) else [])
        return who == deaf and isinstance(action, c.Fetch)

    run.lose = lose
    run.run_until(finished)
    assert asked
    assert len({run.model_hash(who) for who in run.clients}) == 1


@pytest.mark.parametrize("fooled", [1, 2])
def test_a_copied_commitment_is_learnt_once_by_those_who_hear_the_copy_too(fooled: int) -> None:
    """The witnesses' filters hold it, but as another's: its copy has no bytes of its own."""
    run = MemoryRun(4, delay=1)
    liar, *honest = run.clients
    copies = []

    def lose(who: bytes, action: c.Effect) -> bool:
        if isinstance(action, c.Tell) and who != liar:
            copy = replace(action.result, sender=liar)
            copies.append(copy)
            run.queue.extend((other, c.Offered(copy)) for other in honest[:fooled])
        return isinstance(action, c.Fetch) and action.result in copies

    run.lose = lose
    run.run_until(finished)
    assert len({run.model_hash(who) for who in run.clients}) == 1
    assert all(len(set(learnt)) == len(learnt) == 6 * 4 for learnt in run.learnt.values())
    assert run.judged() == (72, 0)


def test_a_client_that_never_trains_is_removed_and_its_work_done_by_others() -> None:
    run = MemoryRun(4, delay=1, min_clients=3, init_min_clients=4)
    idle = list(run.clients)[2]
    run.lose = lambda who, action: who == idle and isinstance(action, c.Tell)
    run.run_until(finished)
    removed = {(e.id, e.why) for e in run.effects if isinstance(e, m.ClientRemoved)}
    assert (idle, "Unhealthy") in removed
    assert all(why != "Unhealthy" or who == idle for who, why in removed)
    honest = {run.model_hash(who) for who in run.clients if who != idle}
    assert honest == {run.state.model_hash}


def test_a_client_with_a_wrong_model_leaves_and_comes_back_with_the_right_one() -> None:
    run = MemoryRun(
        4, min_clients=3, init_min_clients=4, rounds_per_epoch=4, total_steps=8, delay=0
    )
    odd = list(run.clients)[1]
    run.run_until(lambda run: len(run.learnt[odd]) >= 4)
    run.learnt[odd][0] = b"a flipped bit"
    run.run_until(lambda run: run.clients[odd].phase is ClientPhase.Lost)
    run.run_until(finished)
    assert run.model_hash(odd) == run.state.model_hash


def test_a_storing_client_that_fails_never_reports_success() -> None:
    run = MemoryRun(3)
    run.lose = lambda who, action: isinstance(action, c.Upload)
    run.run_until(finished)
    assert not [e for e in run.effects if isinstance(e, m.CheckpointStored)]


def test_a_client_that_cannot_load_the_model_stays_away_longer_each_time() -> None:
    run = MemoryRun(2, warmup_time=1000)
    joins: list[int] = []

    def lose(who: bytes, action: c.Effect) -> bool:
        if isinstance(action, c.Load):
            run.queue.append((who, c.NotLoaded(action.epoch)))
        if isinstance(action, c.Submit) and isinstance(action.message, m.Join):
            joins.append(run.now)
        return isinstance(action, c.Load)

    run.lose = lose
    run.run_until(lambda run: run.now > 200_000)
    waits = [after - before for before, after in pairwise(sorted(set(joins)))]
    assert waits[:3] == sorted(waits[:3])
    assert max(waits) <= 61_000
    assert len(set(joins)) < 12


def test_a_result_is_not_told_after_the_client_gave_the_epoch_up() -> None:
    """Its training ended while it found out that it cannot follow: its bytes are gone by then."""
    run = MemoryRun(3, delay=0, rounds_per_epoch=6)
    who, client = next(iter(run.clients.items()))
    late: list[c.Trained] = []

    def lose(by: bytes, action: c.Effect) -> bool:
        if by == who and isinstance(action, c.Train) and action.height == 1:
            commitment = commitment_hash(action.step, action.share, who)
            late.append(c.Trained(Result(action.epoch, 1, who, commitment, commitment, 1)))
            return True
        return False

    run.lose = lose
    run.run_until(lambda run: bool(late))
    missed = replace(run.state.round, height=1 + STORED_ROUNDS)
    later = replace(run.state, epoch=replace(run.state.epoch, rounds=(missed,)))
    given_up = machine.apply(client, c.Saw(later), run.now)
    assert c.Submit(m.Withdraw(who)) in given_up
    assert not [a for a in machine.apply(client, late[0], run.now) if isinstance(a, c.Tell)]


def test_what_only_liars_know_of_is_asked_for_three_times_and_no_more() -> None:
    """One tells each peer another result: all witnesses saw it, and none of them a quorum has."""
    run = MemoryRun(4, delay=1)
    liar, *honest = run.clients
    asked: Counter[tuple[bytes, int, int]] = Counter()

    def lose(who: bytes, action: c.Effect) -> bool:
        if isinstance(action, c.Ask) and liar in action.shares:
            asked[who, action.epoch, action.height] += 1
            return True
        if isinstance(action, c.Tell) and who == liar:
            for other in honest:
                own = sha256(action.result.commitment + other).digest()
                told = replace(action.result, commitment=own, blob=own)
                run.queue.append((other, c.Offered(told)))
            return True
        return False

    run.lose = lose
    run.run_until(finished)
    assert set(asked.values()) == {3}
    assert {who for who, _, _ in asked} == set(run.clients)
    assert len({run.model_hash(who) for who in run.clients}) == 1


@pytest.mark.parametrize(("delay", "trains"), [(0, False), (1, True)])
def test_work_begins_after_its_time_only_if_the_next_round_may_wait_for_it(
    delay: int, trains: bool
) -> None:
    """The model is ready when training time is over: without a delay nobody would see the work."""
    run = MemoryRun(3, delay=delay, min_clients=2, init_min_clients=3, rounds_per_epoch=6)
    slow, client = next(iter(run.clients.items()))
    learning: list[c.Learn] = []

    def lose(who: bytes, action: c.Effect) -> bool:
        if who == slow and isinstance(action, c.Learn):
            learning.append(action)
        return bool(learning) and who == slow

    run.lose = lose
    run.run_until(
        lambda run: (
            bool(learning)
            and run.state.phase is Phase.RoundWitness
            and run.state.round.height == learning[0].height
            and not run.queue
        )
    )
    done = c.Learnt(learning[0].epoch, learning[0].height, run.state.model_hash)
    begun = [a for a in machine.apply(client, done, run.now) if isinstance(a, c.Train)]
    assert [train.height for train in begun] == ([learning[0].height] if trains else [])


@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("clients", [1, 2, 3, 5])
def test_a_witness_gives_the_merkle_root_of_what_it_received(delay: int, clients: int) -> None:
    run = MemoryRun(clients, delay=delay)
    attested: list[tuple[m.OpportunisticWitness, int]] = []

    def note(who: bytes, action: c.Effect) -> bool:
        if isinstance(action, c.Submit) and isinstance(action.message, m.OpportunisticWitness):
            attested.append((action.message, action.message.height - delay))
        return False

    run.lose = note
    run.run_until(finished)
    assert any(height >= 0 for _, height in attested)
    for message, height in attested:
        at = (message.epoch, height)
        received = [r.commitment for key, r in run.results.items() if key[:2] == at]
        assert message.broadcast_merkle == plain_merkle_root(sorted(received))


def plain_merkle_root(leaves: list[bytes]) -> bytes:
    """By its definition: a tree over hashed leaves, where an odd one is paired with itself."""
    if not leaves:
        return bytes(32)
    level = [sha256(b"\0" + leaf).digest() for leaf in leaves]
    while len(level) > 1:
        pairs = [(level[i], level[min(i + 1, len(level) - 1)]) for i in range(0, len(level), 2)]
        level = [sha256(b"\1" + left + right).digest() for left, right in pairs]
    return level[0]


def test_what_fewer_than_a_quorum_of_filters_hold_is_not_attested() -> None:
    """A filter holds one in a hundred that nobody saw: whoever looks for such a one finds it."""
    shapes = [bloom_shape(4, 7, index) for index in range(4)]
    hashes = [sha256(number.to_bytes(2, "big")).digest() for number in range(1000)]
    seen, made_up = hashes[:4], hashes[4:]
    saw = Attested(tuple((bloom.fill(seen, shape), shape) for shape in shapes), 3)
    in_one = Attested(saw.filters, 1)
    assert all(each in saw for each in seen)
    assert any(each in in_one for each in made_up)
    assert not any(each in saw for each in made_up)


def test_signs_of_life_are_rare_however_short_the_runs_patience_is() -> None:
    run = MemoryRun(1, min_clients=2, health_check_timeout=1e-9)
    (client,) = run.clients.values()
    signs = 0
    for now in range(1000):
        said = machine.apply(client, c.Saw(run.state) if not now else c.Tick(), now)
        signs += sum(isinstance(e, c.Submit) and isinstance(e.message, m.HealthCheck) for e in said)
        assert machine.next_tick(client, now) > now
    assert 0 < signs <= 1000 / machine.SHORTEST_SIGN


def test_a_join_that_is_refused_for_no_reason_is_not_repeated_at_once() -> None:
    run = MemoryRun(1, min_clients=2)
    (client,) = run.clients.values()
    join, refused = m.Join(client.id, "moot"), m.refusal(m.Reason.NotAMember)
    assert c.Submit(join) in machine.apply(client, c.Saw(run.state), 0)
    assert machine.apply(client, c.WasRefused(join, refused), 1) == []
    # The run does not know it, as after a silence: then at once.
    forgotten = c.WasRefused(m.HealthCheck(client.id), refused)
    assert machine.apply(client, forgotten, 2) == [c.Submit(join)]
