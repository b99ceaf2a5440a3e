"""A node that lies about transactions, refusals or rent: it costs a try, no client its place."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from solders.hash import Hash
from solders.pubkey import Pubkey

from authority.any_run import OWNER, A, join, run
from authority.solana.localnet_run import SLOT, connected, knowing, on_chain, owner_of
from authority.solana.lying_node import (
    Asked,
    Honest,
    account_told,
    goes_on,
    in_context,
    lying,
    only,
    result,
    says,
    true_account,
)
from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.solana import client, layout, sender
from folkmoot.authority.solana.localnet.serve import serving
from folkmoot.authority.solana.sender import Sender
from folkmoot.core.coordinator import messages as m


async def test_a_node_that_keeps_transactions_to_itself_is_passed_over() -> None:
    keep = only("sendTransaction", lambda honest: result("1" * 64))
    async with on_chain() as net, lying(net, keep) as node:
        await goes_on(net, node.url)
        assert "sendTransaction" in node.asked


async def test_a_blockhash_that_is_none_of_the_clusters_costs_a_try() -> None:
    other = {"blockhash": str(Hash(b"x" * 32)), "lastValidBlockHeight": 0}

    def twist(asked: Asked, honest: Honest) -> Any:
        if asked["method"] == "getLatestBlockhash":
            return in_context(1, other)
        return result("1" * 64) if asked["method"] == "sendTransaction" else honest()

    async with on_chain() as net, lying(net, twist) as node:
        await goes_on(net, node.url)
        assert "sendTransaction" in node.asked


def refusal(told: Any) -> dict[str, Any]:
    """A node says that a transaction would fail."""
    return {"error": {"code": -32002, "message": "simulation failed", "data": {"err": told}}}


def by_program(code: int) -> dict[str, Any]:
    return {"InstructionError": [1, {"Custom": code}]}


GOOD_BYE = ("NotGranted", "NotTheOwner", "NotConfigured")


@pytest.mark.parametrize("told", [*GOOD_BYE, "InsufficientFundsForFee"])
@pytest.mark.parametrize("late", [False, True])
async def test_one_node_alone_does_not_send_a_client_away(
    told: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the transaction is passed on, or as what became of it."""
    error = told if told.startswith("In") else by_program(layout.ERRORS[told][0])
    lie = only("sendTransaction", lambda honest: refusal(error))
    if late:
        status = {"slot": 1, "err": error, "confirmationStatus": "confirmed"}
        lie = only("getSignatureStatuses", lambda honest: in_context(1, [status]))
    async with on_chain() as net, lying(net, lie) as node, connected(net, A, node.url) as authority:
        net.ledger.airdrop(Pubkey(A.public), 10**9)
        monkeypatch.setattr(Sender, "_get_lamports", not_given)
        assert await authority.submit(join(A)) is None
        async with knowing(node.url, A) as alone:
            with pytest.raises(Denied):
                await alone.submit(m.Withdraw(A.public))


async def not_given(self: Sender) -> bool:
    return False


async def test_what_all_nodes_refuse_for_good_ends_a_client() -> None:
    async with on_chain(open_=False) as net, lying(net) as node, lying(net) as another:
        async with connected(net, A, node.url, another.url) as authority:
            with pytest.raises(Denied, match="has not granted this key"):
                await authority.submit(join(A))
        assert "sendTransaction" in node.asked
        assert "sendTransaction" in another.asked


async def test_an_error_that_no_program_has_is_a_short_sentence() -> None:
    for code in (9**4000, -1, 2**32):
        lie = only("sendTransaction", lambda honest, code=code: refusal(by_program(code)))
        async with on_chain() as net, lying(net, lie) as node:
            assert "the cluster does not run the transaction" in await says(node.url)


async def test_a_client_does_not_pay_for_tick_after_tick_that_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enough = asyncio.Event()

    def waits(first: float) -> Iterator[float]:
        yield from [0.01] * 5  # all of them between ticks for the same
        enough.set()
        while True:
            yield first

    monkeypatch.setattr(client, "backoff", waits)

    heard: list[str] = []

    def hide(asked: Asked, honest: Honest) -> Any:
        """The join is passed on. Each tick is said to have run, and is not."""
        if asked["method"] == "sendTransaction":
            heard.append(asked["params"][0])
            return honest() if heard[-1] == heard[0] else result("1" * 64)
        if asked["method"] == "getSignatureStatuses":
            return in_context(1, [{"slot": 1, "confirmationStatus": "confirmed"}])
        return honest()

    async with on_chain(min_clients=1, warmup_time=1.0) as net, lying(net, hide) as node:
        net.ledger.airdrop(Pubkey(A.public), 10**9)
        async with knowing(node.url, A) as authority, asyncio.timeout(120):
            assert await authority.submit(join(A)) is None
            await enough.wait()


async def test_an_owner_pays_no_rent_that_a_node_made_up() -> None:
    twist = only("getMinimumBalanceForRentExemption", lambda honest: result(10**18))
    async with serving(slot_seconds=SLOT) as net, lying(net, twist) as node:
        owner = owner_of(node.url)
        with pytest.raises(Unreachable, match="lamports of rent, and 2217010560 are usual"):
            await owner.create(run(max_clients=9), True, 0, OWNER.public)
        owner = owner_of(node.url, net.url)
        assert await owner.create(run(max_clients=9), True, 0, OWNER.public)


async def test_an_owner_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_chain() as net:
        monkeypatch.setattr(sender, "GIVE_UP_SECONDS", 1.0)
        keep = only("sendTransaction", lambda honest: result("1" * 64))
        async with lying(net, keep) as node:
            owner = owner_of(node.url)
            with pytest.raises(Unreachable, match="nothing was heard of the transaction"):
                await owner.authorize(A.public)
        same = account_told(net, true_account(net)[: layout.GROWTH])
        stuck = only("getAccountInfo", lambda honest: same)
        net.ledger.faults.drop = 0.0
        async with lying(net, stuck) as node:
            owner = owner_of(node.url)
            with pytest.raises(Denied, match="does not have the size"):
                await owner.create(run(max_clients=9), True, 0, OWNER.public)
