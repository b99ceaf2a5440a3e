"""A node of the cluster that lies, floods or hangs: another one is asked, or a sentence is said."""

import asyncio
import base64
import json
import random
import ssl
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from msgspec.structs import replace
from solders.hash import Hash
from solders.pubkey import Pubkey
from websockets.asyncio.server import ServerConnection

from authority.any_run import OWNER, A, join, run, until
from authority.solana.localnet_run import SLOT, connected, on_chain
from authority.solana.lying_node import (
    Asked,
    Honest,
    Raw,
    in_context,
    lying,
    only,
    raw_node,
    result,
)
from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.solana import answers, client, follower, layout, post, rpc, sender
from folkmoot.authority.solana.answers import NO_RUN
from folkmoot.authority.solana.client import SolanaAuthority
from folkmoot.authority.solana.create import Owner
from folkmoot.authority.solana.instructions import PROGRAM_ID, coordinator_address
from folkmoot.authority.solana.localnet.serve import Localnet, serving
from folkmoot.authority.solana.place import Place
from folkmoot.authority.solana.sender import Sender
from folkmoot.core.coordinator import Phase
from folkmoot.core.coordinator import messages as m
from folkmoot.host.signing import Identity
from support.certificates import CertificateAuthority

DEEP = b"[" * 100_000


async def forever(writer: asyncio.StreamWriter, piece: bytes, seconds: float = 0.0) -> None:
    while True:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(seconds)


def answering(*pieces: bytes) -> Raw:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.writelines(pieces)
        await writer.drain()

    return answer


def endless(begin: bytes, piece: bytes, seconds: float = 0.0) -> Raw:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        await forever(writer, piece, seconds)

    return answer


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
# What goes over the line, and what is said about it.
RAW: dict[str, tuple[Raw, str]] = {
    "hangs up": (answering(), "hung up"),
    "hangs up in the middle": (answering(OK, b"Content-Length: 9\r\n\r\n{"), "hung up"),
    "another protocol": (answering(b"SSH-2.0-x\r\n\r\n"), "does not speak HTTP"),
    "an error": (answering(b"HTTP/1.1 503 \x1b[2Jbusy\r\n\r\n"), "HTTP 503"),
    "a redirect": (answering(b"HTTP/1.1 302 Found\r\nLocation: http://a/\r\n\r\n"), "HTTP 302"),
    "no length": (answering(OK, b"Content-Length: x\r\n\r\n"), "how long its answer is"),
    "less than nothing": (answering(OK, b"Content-Length: -1\r\n\r\n"), "more than"),
    "too much": (answering(OK, b"Content-Length: 99999999999\r\n\r\n"), "more than"),
    "too large a chunk": (answering(CHUNKED, b"fffffffff\r\n"), "more than"),
    "no chunk": (answering(CHUNKED, b"x\r\n"), "how long its answer is"),
    "chunks of a byte": (answering(CHUNKED, b"1\r\nx\r\n" * 5000), "more than"),
    "chunks without end": (endless(CHUNKED, b"8000\r\n" + b" " * 0x8000 + b"\r\n"), "more than"),
    "an answer without end": (endless(OK + b"\r\n", b" " * 65536), "more than"),
    "a head without end": (endless(OK, b"x" * 9000), "too long"),
    "a slow head": (endless(OK, b"a: b\r\n", 0.05), "no whole answer"),
    "a slow answer": (endless(OK + b"Content-Length: 999\r\n\r\n", b" ", 0.05), "no whole answer"),
    "go on, go on": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "HTTP 100"),
    "nothing": (endless(b"", b"", 0.05), "no whole answer"),
}


async def goes_on(net: Localnet, *urls: str) -> None:
    """A client that knows these nodes and then an honest one says something and is heard."""
    identity = Identity.random()
    async with connected(net, identity, *urls) as authority:
        assert await authority.submit(join(identity)) is None
        shown = await anext(authority.watch())
        assert shown.pending.get(identity.public) is not None
        assert await authority.submit(m.Withdraw(identity.public)) is None


async def says(url: str) -> str:
    """What a client that knows this node only says."""
    authority = SolanaAuthority(f"moot@{url}", "moot", A)
    try:
        async with asyncio.timeout(120):
            with pytest.raises((Unreachable, Denied)) as told:
                await authority.submit(join(A))
    finally:
        await authority.close()
    said = str(told.value)
    assert said.isprintable()
    assert len(said) < 1000
    return said


async def test_who_does_not_answer_as_http_does_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with on_chain() as net:
        for name, (answer, why) in RAW.items():
            slow = why == "no whole answer"
            monkeypatch.setattr(post, "TIMEOUT", 1.0 if slow else 60.0)
            async with raw_node(answer) as url:
                assert why in await says(url), name
        monkeypatch.undo()
        async with raw_node(RAW["a redirect"][0]) as first, raw_node(RAW["too much"][0]) as second:
            await goes_on(net, first, second)


async def test_an_answer_without_end_is_not_kept() -> None:
    written = 0

    async def pour(writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(OK + b"\r\n")
        while True:
            writer.write(b" " * 65536)
            await writer.drain()
            written += 65536

    async with raw_node(pour) as url:
        with pytest.raises(OSError, match="more than"):
            await post.post(url, b"{}")
    # What the operating system keeps of a connection is a few megabytes.
    assert written < post.ANSWER_MAX + 32 * 1024 * 1024


async def test_an_answer_in_chunks_or_without_a_length_is_read() -> None:
    async with raw_node(answering(CHUNKED, b"3;x=y\r\n{} \r\n1\r\n \r\n0\r\n\r\n")) as url:
        assert await post.post(url, b"{}") == b"{}  "
    async with raw_node(answering(OK, b"\r\n", b"{", b"}")) as url:
        assert await post.post(url, b"{}") == b"{}"


async def test_a_node_is_known_by_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = CertificateAuthority(tmp_path, "ca")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*ca.sign("node"))
    async with raw_node(answering(OK, b"Content-Length: 2\r\n\r\n{}"), tls) as url:
        assert "certificate is not one that this machine trusts" in await says(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(ca.file))
        post.trusted.cache_clear()
        assert await post.post(url, b"{}") == b"{}"
    post.trusted.cache_clear()


async def test_who_is_not_there_is_said_to_be_so() -> None:
    assert "nobody listens there" in await says("http://127.0.0.1:9")
    assert "no such host" in await says("http://nowhere.invalid:9")


NONSENSE: list[Any] = [
    b"", b"{", b"7", b'"x"', b"null", b"[]", b"{}", b"\xff\xfe", DEEP,
    b'{"result":' + DEEP, b'{"error":{"code":1,"data":' + DEEP,
    b'{"error":{"code":1e999}}', b'{"error":{"code":' + b"9" * 5000 + b"}}", b'{"error":7}',
    {"error": {"code": -32005, "message": "Node is unhealthy"}},
    {"error": {"code": -32603, "message": "\x1b[2J" + "x" * 100_000}},
    {"error": {"code": "x", "message": None}},
    result(None), result(7), result("x"), result([]), result({}), result(True),
    result({"context": None, "value": None}), result({"context": {"slot": 1}}),
    result({"context": {"slot": -1}, "value": [None]}),
    result({"context": {"slot": 2**64}, "value": [None]}),
    result({"context": {"slot": 1}, "value": [{"slot": 2**64, "confirmationStatus": "finalized"}]}),
    result({"context": {"slot": 1}, "value": [{"confirmationStatus": "finalized"}]}),
    result({"context": {"slot": 1}, "value": {"blockhash": "x", "lastValidBlockHeight": 9}}),
    result({"context": {"slot": 1}, "value": {"blockhash": 7, "lastValidBlockHeight": 9}}),
    result({"context": {"slot": 1}, "value": {"owner": 7, "data": ["", "base64"]}}),
    result({"context": {"slot": 1}, "value": {"owner": str(PROGRAM_ID), "data": []}}),
    result({"context": {"slot": 1}, "value": {"owner": str(PROGRAM_ID), "data": ["!"]}}),
]  # fmt: skip
KEY = str(coordinator_address(PROGRAM_ID, "moot"))
WHOLE = {"encoding": "base64"}
ASKED: dict[str, tuple[Any, ...]] = {
    "getAccountInfo": (answers.read_account, KEY, WHOLE),
    "getLatestBlockhash": (answers.read_blockhash,),
    "getSignatureStatuses": (answers.read_status, ["1" * 64]),
    "getBlockHeight": (answers.read_number,),
}


@pytest.mark.parametrize("method", ASKED)
async def test_who_answers_with_nonsense_is_passed_over(method: str) -> None:
    read, *params = ASKED[method]
    async with on_chain() as net, lying(net) as node:
        for told in NONSENSE:
            if told == result(7) and method == "getBlockHeight":
                continue  # that is one
            nodes = rpc.Rpc([node.url, net.url])
            node.twist = only(method, lambda honest, told=told: told)
            await nodes.call(read, method, *params)
            assert nodes.url == net.url, told
        for told in NONSENSE[::12]:
            node.twist = only(method, lambda honest, told=told: told)
            await goes_on(net, node.url)


async def test_who_hears_nothing_but_nonsense_says_so() -> None:
    async with serving(slot_seconds=SLOT) as net, lying(net) as node:
        for told in NONSENSE:
            node.twist = lambda asked, honest, told=told: told
            said = await says(node.url)
            assert f"{node.url}: " in said or f"{node.url} does not answer" in said


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
        alone = SolanaAuthority(f"moot@{node.url}", "moot", A)
        with pytest.raises(Denied):
            await alone.submit(m.Withdraw(A.public))
        await alone.close()


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
        authority = SolanaAuthority(f"moot@{node.url}", "moot", A)
        assert await authority.submit(join(A)) is None
        async with asyncio.timeout(120):
            await enough.wait()
        await authority.close()


async def test_a_subscription_that_makes_up_change_after_change_has_half_of_our_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, clock = asyncio.Event(), count(0, 10**6)  # each message takes a million seconds
    monkeypatch.setattr(follower, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    async def make_up(socket: ServerConnection) -> None:
        await socket.recv()
        for number in range(1, 6):
            data = with_number(true_account(net), 10**6 + number, "sequence")
            await socket.send(told_by_subscription(net, data))
        told.set()
        await socket.wait_closed()

    async with (
        on_chain() as net,
        lying(net, tell=make_up) as node,
        connected(net, A, node.url) as authority,
        asyncio.timeout(120),
    ):
        await anext(authority.watch())
        await told.wait()
        for _ in range(20):
            await net.next_slot.wait()
        assert int(authority._record["sequence"]) == 10**6 + 1


def account_told(net: Localnet, data: bytes, owner: Pubkey = PROGRAM_ID) -> Any:
    packed = base64.b64encode(zstandard.compress(data)).decode()
    return in_context(net.ledger.slot, {"owner": str(owner), "data": [packed, "base64+zstd"]})


def true_account(net: Localnet, run_id: str = "moot") -> bytes:
    found = net.ledger.account(coordinator_address(PROGRAM_ID, run_id))
    assert found is not None
    return bytes(found.data)


def with_number(data: bytes, number: int, *path: str) -> bytes:
    """An account with another number in it."""
    kind, at = layout.RUN, 0
    for name in path:
        kind, more, *_ = kind.fields[name]  # type: ignore[index]
        at += more
    return data[:at] + number.to_bytes(kind.itemsize, "little") + data[at + kind.itemsize :]


def wide_window() -> bytes:
    """A frame of nine bytes for which 2 GiB of memory are wanted."""
    return bytes.fromhex("28b52ffd 00a8 090000") + b"x"


async def test_an_account_that_cannot_be_the_runs_is_asked_of_another_node() -> None:
    async with on_chain() as net:
        other = Owner(Place("mood", (net.url,), PROGRAM_ID), OWNER)
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


def told_by_subscription(net: Localnet, data: bytes) -> str:
    told = account_told(net, data)["result"]
    said = {"method": "accountNotification", "params": {"result": told, "subscription": 1}}
    return json.dumps(said)


NOISE: list[str | bytes] = [
    "", "{", "7", "[]", DEEP.decode(), b"\xff", "x" * 2_000_000,
    '{"method":"accountNotification","params":7}',
    '{"method":"accountNotification","params":{"result":{"context":{"slot":1},"value":null}}}',
    '{"method":"accountNotification","params":{"result":{"context":{"slot":1},"value":'
    '{"owner":"x","data":[]}}}}',
]  # fmt: skip


async def test_a_subscription_that_tells_nonsense_is_ended() -> None:
    """And what it would have told is heard from another, or asked for."""
    noise, ended = iter(NOISE), asyncio.Event()

    async def tell(socket: ServerConnection) -> None:
        await socket.recv()
        try:
            await socket.send(next(noise))
            await socket.wait_closed()
        finally:
            ended.set()

    async with on_chain(min_clients=1, max_clients=1) as net, lying(net, tell=tell) as node:
        for _ in NOISE:
            ended.clear()
            async with asyncio.timeout(120), connected(net, A, node.url) as authority:
                await anext(authority.watch())
                await ended.wait()
                assert authority.last_error == ""


async def test_a_subscription_that_floods_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "STALE_MAX", 200)
    floods, ended = 0, asyncio.Event()

    async def flood(socket: ServerConnection) -> None:
        nonlocal floods
        floods += 1
        await socket.recv()
        try:
            while True:
                await socket.send(old)
                await asyncio.sleep(0)  # the client shares this loop
        finally:
            ended.set()

    async with on_chain() as net:
        old = told_by_subscription(net, true_account(net))
        async with lying(net, tell=flood) as node, connected(net, A, node.url) as authority:
            async with asyncio.timeout(120):
                assert await authority.submit(join(A)) is None
                await ended.wait()
            assert await authority.submit(m.Withdraw(A.public)) is None
            _, received = authority.traffic()
    else_told = 2_000_000  # answers, and what the honest node tells
    assert received < floods * (follower.STALE_MAX + 2) * len(old) + else_told


async def test_a_subscription_is_not_looked_for_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asyncio.Event()

    async def elsewhere(socket: ServerConnection) -> None:
        raise AssertionError("the client was led here")

    async def redirect(writer: asyncio.StreamWriter) -> None:
        where = f"ws://127.0.0.1:{other.port + 1}/"
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {where}\r\n\r\n".encode())
        await writer.drain()
        asked.set()

    async with (
        on_chain() as net,
        lying(net, tell=elsewhere) as other,
        raw_node(redirect) as url,
        connected(net, A) as authority,
    ):
        monkeypatch.setattr(follower, "websocket_url", lambda _: url.replace("http", "ws"))
        assert await authority.submit(join(A)) is None
        async with asyncio.timeout(120):
            await asked.wait()
            await authority.submit(m.Withdraw(A.public))


async def test_an_owner_pays_no_rent_that_a_node_made_up() -> None:
    twist = only("getMinimumBalanceForRentExemption", lambda honest: result(10**18))
    async with serving(slot_seconds=SLOT) as net, lying(net, twist) as node:
        owner = Owner(Place("moot", (node.url,), PROGRAM_ID), OWNER)
        with pytest.raises(Unreachable, match="lamports of rent, and 2217010560 are usual"):
            await owner.create(run(max_clients=9), True, 0, OWNER.public)
        owner = Owner(Place("moot", (node.url, net.url), PROGRAM_ID), OWNER)
        assert await owner.create(run(max_clients=9), True, 0, OWNER.public)


async def test_an_owner_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_chain() as net:
        monkeypatch.setattr(sender, "GIVE_UP_SECONDS", 1.0)
        keep = only("sendTransaction", lambda honest: result("1" * 64))
        async with lying(net, keep) as node:
            owner = Owner(Place("moot", (node.url,), PROGRAM_ID), OWNER)
            with pytest.raises(Unreachable, match="nothing was heard of the transaction"):
                await owner.authorize(A.public)
        same = account_told(net, true_account(net)[: layout.GROWTH])
        stuck = only("getAccountInfo", lambda honest: same)
        net.ledger.faults.drop = 0.0
        async with lying(net, stuck) as node:
            owner = Owner(Place("moot", (node.url,), PROGRAM_ID), OWNER)
            with pytest.raises(Denied, match="does not have the size"):
                await owner.create(run(max_clients=9), True, 0, OWNER.public)
