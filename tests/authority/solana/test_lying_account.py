"""A node that shows another account than the run's, or an old one, or one of the future."""

import asyncio
import base64
import random
from contextlib import suppress
from typing import Any

import pytest
import zstandard
from msgspec.structs import replace
from solders.pubkey import Pubkey

from authority.any_run import OWNER, A, join, run, until
from authority.solana.localnet_run import connected, on_chain, owner_of
from authority.solana.lying_node import (
    Asked,
    Honest,
    account_told,
    goes_on,
    in_context,
    lying,
    only,
    says,
    true_account,
    with_number,
)
from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.solana import follower, rpc
from folkmoot.authority.solana.answers import NO_RUN
from folkmoot.authority.solana.instructions import PROGRAM_ID
from folkmoot.core.coordinator import Phase
from folkmoot.core.coordinator import messages as m


def wide_window() -> bytes:
    """A frame of nine bytes for which 2 GiB of memory are wanted."""
    return bytes.fromhex("28b52ffd 00a8 090000") + b"x"


async def test_an_account_that_cannot_be_the_runs_is_asked_of_another_node() -> None:
    async with on_chain() as net:
        other = owner_of(net.url, run_id="mood")
        await other.create(replace(run(max_clients=9), run_id="mood"), True, 0, OWNER.public)
        true = true_account(net)
        noise = random.Random(1).randbytes(len(true))
        lies: dict[str, tuple[Any, str]] = {
            "none": (in_context(1, None), NO_RUN),
            "another's": (account_told(net, true, Pubkey(A.public)), "another program"),
            "cut": (account_told(net, true[:-1]), "creation did not end"),
            "empty": (account_told(net, b""), "creation did not end"),
            "larger": (account_told(net, true + b"x"), "larger than a run's"),
            "noise": (account_told(net, noise), "not hold a run"),
            "newer": (account_told(net, with_number(true, 9, "version")), "has version 9"),
            "no phase": (account_told(net, with_number(true, 99, "phase")), "damaged"),
            "bare": (account_told(net, with_number(true, 0, "phase")), "no configuration yet"),
            "no file": (
                account_told(net, with_number(true, 3, "config", "run_len")),
                "cannot read",
            ),
            "another run": (account_told(net, true_account(net, "mood")), "another run"),
            "crowded": (
                account_told(net, with_number(true, 2**32 - 1, "epoch", "client_count")),
                "damaged",
            ),
        }
        for packed in (zstandard.compress(bytes(2**30)), wide_window(), b"AAAA"):
            value = {"owner": str(PROGRAM_ID), "data": ["", "base64+zstd"]}
            value["data"][0] = base64.b64encode(packed).decode()  # type: ignore[index]
            lies[packed.hex()[:30]] = in_context(1, value), "account"
        for name, (lie, why) in lies.items():
            async with lying(net, only("getAccountInfo", lambda honest, lie=lie: lie)) as node:
                assert why in await says(node.url), name
                await goes_on(net, node.url)


async def test_a_node_that_stopped_following_the_cluster_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower, "OTHERS_SECONDS", 0.2)
    shown: dict[str, Any] = {}

    def stopped(asked: Asked, honest: Honest) -> Any:
        return shown.setdefault(str(asked["params"]), honest())

    async with (
        on_chain(min_clients=1) as net,
        lying(net, stopped) as node,
        connected(net, OWNER, node.url) as authority,
        connected(net, A) as other,
    ):
        await anext(authority.watch())
        async with asyncio.timeout(120):
            while len(shown) < 2:  # all of the account, and then its number
                await net.next_slot.wait()
        watching = asyncio.create_task(until(authority, Phase.Warmup))
        assert await other.submit(join(A)) is None
        await watching


async def test_a_node_cannot_hide_a_run_behind_a_slot_from_the_future(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Time enough for it to say something before another one is asked.
    monkeypatch.setattr(follower, "OTHERS_SECONDS", 3.0)
    frozen: dict[str, Any] = {}

    def hide(asked: Asked, honest: Honest) -> Any:
        """From the first transaction on, what there was then, as if it were much newer."""
        told = honest()
        if asked["method"] == "getSignatureStatuses":
            for status in filter(None, told["result"]["value"]):
                status["slot"] = 2**62
        elif asked["method"] == "getAccountInfo" and "getSignatureStatuses" in node.asked:
            told = frozen.setdefault(str(asked["params"][1].get("dataSlice")), told)
            told["result"]["context"]["slot"] = 2**62
        return told

    async with (
        on_chain() as net,
        lying(net, hide) as node,
        connected(net, OWNER, node.url) as authority,
        connected(net, A) as other,
    ):
        assert await authority.submit(join(OWNER)) is None
        watching = asyncio.create_task(until(authority, Phase.Warmup))
        assert await other.submit(join(A)) is None
        await watching


@pytest.mark.parametrize("lie", [2**62, 10**9])
async def test_a_slot_that_nobody_else_knows_is_forgotten(
    lie: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "BEHIND_WAITS", (0.1,) * 5)

    def later(honest: Honest) -> Any:
        told = honest()
        for status in filter(None, told["result"]["value"]):
            status["slot"] = lie
        return told

    async with (
        on_chain() as net,
        lying(net, only("getSignatureStatuses", later)) as node,
        connected(net, A, node.url) as authority,
    ):
        with suppress(Unreachable):
            await authority.submit(join(A))
        node.twist = lambda asked, honest: honest()
        assert await authority.submit(m.Withdraw(A.public)) is None
        assert await authority.submit(m.Withdraw(A.public)) == m.refusal(m.Reason.NotAMember)


async def test_a_state_that_all_others_contradict_ends_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower, "LESS_SECONDS", 0.5)
    monkeypatch.setattr(follower, "LOOK_SECONDS", 0.1)
    async with on_chain() as net:
        forged = account_told(net, with_number(true_account(net), 2**40, "sequence"))
        async with (
            lying(net, only("getAccountInfo", lambda honest: forged)) as node,
            connected(net, A, node.url) as authority,
        ):
            watch = authority.watch()
            await anext(watch)
            node.twist = lambda asked, honest: b""
            with pytest.raises(Denied, match="closed and created again, or that one lied"):
                async with asyncio.timeout(120):
                    await anext(watch)


async def test_one_node_that_shows_less_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "LESS_SECONDS", 0.5)
    monkeypatch.setattr(follower, "LOOK_SECONDS", 0.1)
    value = {"owner": str(PROGRAM_ID), "data": [base64.b64encode(bytes(8)).decode(), "base64"]}

    def less(asked: Asked, honest: Honest) -> Any:
        number = "dataSlice" in str(asked["params"])
        return in_context(net.ledger.slot, value) if number else honest()

    async with (
        on_chain() as net,
        lying(net, less) as node,
        connected(net, A, node.url) as authority,
        asyncio.timeout(120),
    ):
        await anext(authority.watch())
        for _ in range(30):
            await net.next_slot.wait()
        assert node.asked.count("getAccountInfo") > 1
        assert await authority.submit(join(A)) is None
