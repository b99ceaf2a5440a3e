"""The authority of a run on Solana over a real connection: what it does, refuses and survives."""

import asyncio
import random
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from solders.pubkey import Pubkey

from authority.any_run import OWNER, A, B, join, run, until
from authority.solana.localnet_run import SLOT, connected, knowing, on_chain, owner_of
from authority.solana.lying_node import Honest, in_context, lying, only
from authority.solana.test_program import ANN as ANN_KEY
from authority.solana.test_program import a_round
from authority.solana.vm import Vm
from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.open import open_authority
from folkmoot.authority.solana import account, place
from folkmoot.authority.solana.client import (
    LONGEST_WAIT,
    SLOT_SECONDS,
    SolanaAuthority,
    left_to_others,
)
from folkmoot.authority.solana.instructions import PROGRAM_ID
from folkmoot.authority.solana.localnet.ledger import Faults, LocalLedger
from folkmoot.authority.solana.localnet.serve import serving
from folkmoot.authority.solana.transactions import COMPUTE_UNITS
from folkmoot.core.coordinator import Phase
from folkmoot.core.coordinator import messages as m
from folkmoot.host.signing import Identity
from folkmoot.host.tasks import end_tasks
from support.light_member import due


async def test_a_witness_is_heard_and_reveals_its_links() -> None:
    """One client alone, through a whole epoch."""
    async with on_chain(min_clients=1, max_clients=1, cooldown_time=1.0) as net:
        async with connected(net, A) as authority:
            assert await authority.submit(join(A)) is None
            async with asyncio.timeout(240):
                async for state in authority.watch():
                    if state.phase is Phase.Warmup:
                        await authority.submit(m.Ready(A.public, 0))
                    elif state.phase is Phase.RoundTrain and not state.round.witnesses:
                        current = state.round
                        said = m.OpportunisticWitness(
                            A.public, 0, current.height, state.committee(current).get_witness(0),
                            bytes(8), bytes(8), bytes(32), b"m" * 32,
                        )  # fmt: skip
                        assert await authority.submit(said) is None
                    elif state.epoch_number == 1:
                        break
        assert state.model_hash == b"m" * 32


async def test_three_members_bring_a_run_to_its_end_and_nobody_serves_it() -> None:
    """They train nothing; all else is what members say."""
    identities = [Identity(bytes([seed]) * 32) for seed in (1, 2, 3)]

    async def attend(authority: SolanaAuthority, identity: Identity) -> None:
        async for state in authority.watch():
            if state.phase is Phase.Finished:
                return
            message = due(state, identity.public)
            if message is not None:
                await authority.submit(message)  # what comes too late is refused, and why not

    config = {"min_clients": 3, "total_steps": 1, "rounds_per_epoch": 1, "cooldown_time": 1.0}
    async with on_chain(points=90, **config) as net, AsyncExitStack() as stack:
        members = [await stack.enter_async_context(connected(net, x)) for x in identities]
        async with asyncio.timeout(240), asyncio.TaskGroup() as group:
            for authority, identity in zip(members, identities, strict=True):
                group.create_task(attend(authority, identity))
        owner = owner_of(net.url)
        record = account.read(await owner.data())
        assert {int(slot["points"]) for slot in account.pending(record)} == {30}


async def test_a_run_is_not_changed_into_one_that_does_not_fit() -> None:
    async with on_chain() as net, connected(net, OWNER) as authority:
        refused = await authority.submit(m.Update(run(max_clients=300)))
        assert refused == m.refusal(m.Reason.BadConfig)


async def test_a_node_that_is_behind_is_waited_for() -> None:
    async with on_chain() as net, connected(net, OWNER) as authority:
        await anext(authority.watch())
        ledger = net.ledger
        ledger.faults.mute = True  # so that only asking helps
        ledger.fall_behind()
        known = len(ledger.statuses)
        pausing = asyncio.create_task(authority.submit(m.Pause()))
        async with asyncio.timeout(120):
            while len(ledger.statuses) == known or ledger.slot < ledger.shown_slot + 20:
                await net.next_slot.wait()
        assert not pausing.done(), "it was confirmed, and the node does not show it"
        ledger.catch_up()
        assert await pausing is None
        assert (await anext(authority.watch())).phase is Phase.Paused


async def test_a_closed_run_lets_in_who_is_granted() -> None:
    async with on_chain(open_=False) as net, connected(net, A) as authority:
        with pytest.raises(Denied, match="has not granted this key"):
            await authority.submit(join(A))
        owner = owner_of(net.url)
        await owner.authorize(A.public)
        assert await authority.submit(join(A)) is None
        await owner.revoke(A.public)
        assert await authority.submit(m.Withdraw(A.public)) is None
        with pytest.raises(Denied, match="has not granted this key"):
            await authority.submit(join(A))


async def test_a_run_that_is_not_there_is_said_to_be_missing() -> None:
    async with on_chain() as net, connected(net, A, run_id="other") as authority:
        with pytest.raises(Denied, match="there is no such run"):
            await anext(authority.watch())
        with pytest.raises(Denied, match="there is no such run"):
            await authority.submit(m.Withdraw(A.public))


async def test_a_run_is_created_once_and_finished_when_it_was_broken_off() -> None:
    async with serving() as net:
        owner, made = owner_of(net.url), run(max_clients=9)
        broken_off = asyncio.create_task(owner.create(made, True, 0, OWNER.public))
        async with asyncio.timeout(120):
            while not await owner.data():
                await net.next_slot.wait()
        await end_tasks([broken_off])
        assert await owner.create(made, True, 0, OWNER.public)
        assert not await owner.create(made, True, 0, OWNER.public)
        with pytest.raises(ValueError, match="already, with another configuration"):
            await owner.create(run(max_clients=8), True, 0, OWNER.public)
        with pytest.raises(ValueError, match="at most 256"):
            await owner.create(run(max_clients=257), True, 0, OWNER.public)
        await owner.close_run()
        assert await owner.data() == b""


async def test_it_goes_on_when_a_node_is_down_and_comes_back() -> None:
    async with on_chain() as net, connected(net, A) as authority:
        watch = authority.watch()
        await anext(watch)
        net.go_down()
        with pytest.raises(Unreachable):
            await authority.submit(join(A))
        net.come_back()
        assert await authority.submit(join(A)) is None
        async with asyncio.timeout(120):
            while not len((await anext(watch)).pending):
                pass


async def test_another_node_is_asked_when_one_does_not_answer() -> None:
    nobody = "http://127.0.0.1:9"
    async with on_chain() as net, connected(net, A, nobody) as authority:
        assert await authority.submit(join(A)) is None


@pytest.mark.parametrize("from_the_beginning", [True, False])
async def test_a_subscription_that_died_without_a_word_is_made_up_for_by_asking(
    from_the_beginning: bool,
) -> None:
    faults = Faults(mute=from_the_beginning)
    async with (
        on_chain(ledger=LocalLedger(faults=faults)) as net,
        connected(net, A) as at_a,
        connected(net, B) as at_b,
    ):
        assert await at_a.submit(m.Withdraw(A.public)) == m.refusal(m.Reason.NotAMember)
        faults.mute = True
        watching = asyncio.create_task(until(at_a, Phase.Warmup))
        for identity, authority in ((A, at_a), (B, at_b)):
            assert await authority.submit(join(identity)) is None
        await watching


async def test_lost_and_late_transactions_are_sent_again() -> None:
    async with on_chain() as net, connected(net, A) as authority:
        net.ledger.faults.drop, net.ledger.faults.delay = 0.6, 0.2
        assert await authority.submit(join(A)) is None
        assert await authority.submit(m.Withdraw(A.public)) is None


async def test_a_transaction_whose_blockhash_expired_is_made_anew() -> None:
    async with on_chain() as net, connected(net, A) as authority:
        await anext(authority.watch())
        net.ledger.faults.delay = 0.5
        joining = asyncio.create_task(authority.submit(join(A)))
        async with asyncio.timeout(120):
            while not net.methods.waiting:
                await net.next_slot.wait()
        net.ledger.faults.delay = 0.0
        net.ledger.fork()
        net.ledger.slot += 200  # nobody can wait a minute for it
        assert await joining is None


async def test_who_cannot_pay_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place.Place, "loopback", False)
    async with on_chain(ledger=_rich_owner()) as net, connected(net, A) as authority:
        with pytest.raises(Denied, match="send it some lamports"):
            await authority.submit(join(A))


async def test_who_cannot_pay_the_rent_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place.Place, "loopback", False)
    async with serving(slot_seconds=SLOT) as net:
        owner = owner_of(net.url)
        net.ledger.airdrop(owner.key.pubkey(), 2 * 10**9)
        with pytest.raises(Denied, match=r"send it some lamports.*who creates a run 2\.3 SOL"):
            await owner.create(run(max_clients=9), True, 0, OWNER.public)


async def test_what_is_heard_of_late_is_not_said_twice() -> None:
    """A node knows nothing of a transaction that has run: the same one is sent, and runs once."""
    unheard = 0

    def deaf(honest: Honest) -> Any:
        nonlocal unheard
        unheard += 1
        return in_context(1, [None]) if unheard < 20 else honest()

    async with (
        on_chain() as net,
        lying(net, only("getSignatureStatuses", deaf)) as node,
        connected(net, A) as before,
    ):
        await before.submit(m.Withdraw(A.public))  # so that it has lamports
        known = len(net.ledger.statuses)
        async with knowing(node.url, A) as authority:
            assert await authority.submit(join(A)) is None
        assert node.asked.count("sendTransaction") > 1
        assert len(net.ledger.statuses) == known + 1


async def test_a_transaction_pays_the_price_that_the_url_names() -> None:
    async with on_chain() as net:
        net.ledger.airdrop(Pubkey(A.public), 10**9)
        spent = []
        for price in ("", "?price=0", "?price=10000"):
            had = net.ledger.svm.get_balance(Pubkey(A.public)) or 0
            async with knowing(f"{net.url}{price}", A) as authority:
                assert await authority.submit(join(A)) is None
            spent.append(had - (net.ledger.svm.get_balance(Pubkey(A.public)) or 0))
        limit = COMPUTE_UNITS * 10_000 // 10**6
        assert spent == [5000, 5000, 5000 + limit], "millionths of a lamport for each unit"


async def test_lamports_sent_to_a_runs_address_before_keep_it_away_from_nobody() -> None:
    async with serving(slot_seconds=SLOT) as net:
        owner = owner_of(net.url)
        net.ledger.airdrop(owner.address, 890_880)
        assert await owner.create(run(max_clients=9), True, 0, OWNER.public)


async def test_a_run_of_another_owner_is_not_taken_for_ours() -> None:
    async with on_chain() as net:
        with pytest.raises(ValueError, match="it is another owner's"):
            await owner_of(net.url, identity=A).create(run(max_clients=9), True, 0, A.public)


async def test_who_is_granted_already_or_not_at_all_is_no_error() -> None:
    async with on_chain(open_=False) as net:
        owner = owner_of(net.url)
        assert not await owner.revoke(A.public)
        assert await owner.authorize(A.public)
        assert not await owner.authorize(A.public)
        assert await owner.revoke(A.public)


@pytest.mark.parametrize("clients", [2, 10, 30, 100, 256])
def test_of_many_clients_a_few_tick(clients: int) -> None:
    random.seed(1)
    most = min(clients, 5)
    ticking = []
    for _ in range(200):
        waits = sorted(left_to_others(clients) for _ in range(clients))
        assert waits[0] >= 0
        assert waits[-1] <= LONGEST_WAIT
        # Two slots until the first one's tick is confirmed and told.
        ticking.append(sum(wait < waits[0] + 2 * SLOT_SECONDS for wait in waits))
    assert sum(ticking) / len(ticking) < most + 0.5
    assert left_to_others(1) == left_to_others(0) == 0


def test_a_turn_to_tick_is_kept_until_something_else_is_due(vm: Vm) -> None:
    run = a_round(vm)
    authority = SolanaAuthority("moot@http://127.0.0.1:9", "moot", A)
    authority._record, authority.state = run.record, run.state
    begun = run.state.phase_start
    assert authority._turn(begun, None) is None, "she is not in the run"
    authority._identity = SimpleNamespace(public=bytes(ANN_KEY))  # type: ignore[assignment]
    first = authority._turn(begun, None)
    assert first is not None
    assert first.at >= first.due > begun
    late = first.due + 5000
    assert authority._turn(begun + 1, first) is first
    overdue = authority._turn(late, first)
    assert overdue is first, "due for long, and still our turn then"
    authority.state = replace(run.state, phase_start=late)
    assert authority._turn(late, first) != first


def _rich_owner() -> LocalLedger:
    ledger = LocalLedger()
    ledger.airdrop(Pubkey(OWNER.public), 10**11)
    return ledger


def test_a_place_is_a_run_and_urls() -> None:
    told = place.parse_place("moot@http://a:8899,https://b.example?program=" + str(PROGRAM_ID))
    assert told.urls == ("http://a:8899", "https://b.example")
    assert not told.loopback
    assert place.websocket_url("http://a:8899") == "ws://a:8900"
    assert place.websocket_url("https://b.example/key") == "wss://b.example/key"


def test_a_node_may_want_a_key_in_its_url_and_it_is_not_shown() -> None:
    text = "moot@https://a.example/?api-key=secret&price=500,http://b:1/secret"
    told = place.parse_place(f"{text}?program={PROGRAM_ID}&x=")
    assert told.urls == ("https://a.example/?api-key=secret", "http://b:1/secret?x=")
    assert (told.program, told.price) == (PROGRAM_ID, 500)
    assert place.websocket_url(told.urls[0]) == "wss://a.example/?api-key=secret"
    assert told.shown == "solana:moot@https://a.example,http://b:1"


@pytest.mark.parametrize("text", ["moot", "@http://a:1", "moot@a:1", "moot@http://a:x", "moot@"])
def test_a_place_that_is_none_is_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="expected solana:<run_id>@http"):
        place.parse_place(text)


def test_an_authority_on_solana_is_opened_by_its_url() -> None:
    opened = open_authority("solana:moot@http://127.0.0.1:8899", "moot", A)
    assert isinstance(opened, SolanaAuthority)
    with pytest.raises(ValueError, match="names run 'moot', not 'other'"):
        open_authority("solana:moot@http://127.0.0.1:8899", "other", A)
    for wrong in ("program=x", "price=-1", "price=x", "price=10000001"):
        with pytest.raises(ValueError, match="program=<address>"):
            open_authority(f"solana:moot@http://127.0.0.1:8899?{wrong}", "moot", A)
