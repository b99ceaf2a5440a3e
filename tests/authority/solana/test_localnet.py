"""The localnet speaks Solana's protocol: driven by a client that nobody here wrote, and by hand."""

import asyncio
import base64
import json
from typing import Any

import pytest
from solana.rpc.async_api import AsyncClient
from solana.rpc.commitment import Confirmed, Processed
from solana.rpc.websocket_api import SolanaWsClient
from solders.keypair import Keypair
from solders.system_program import TransferParams, transfer
from solders.transaction_status import TransactionErrorInsufficientFundsForRent

from folkmoot.authority.solana import instructions as say
from folkmoot.authority.solana import layout
from folkmoot.authority.solana.account import read
from folkmoot.authority.solana.instructions import PROGRAM_ID
from folkmoot.authority.solana.layout import Tag
from folkmoot.authority.solana.localnet.ledger import Faults, LocalLedger, as_json
from folkmoot.authority.solana.localnet.serve import Localnet, serving
from folkmoot.authority.solana.transactions import (
    COMPUTE_UNITS,
    TransactionTooLarge,
    custom_error,
    is_poor,
    signed,
)

SOL = 10**9


async def funded(client: AsyncClient) -> Keypair:
    key = Keypair()
    given = (await client.request_airdrop(key.pubkey(), 10 * SOL)).value
    assert (await client.confirm_transaction(given, Processed, sleep_seconds=0.05)).value[0]
    return key


async def create(client: AsyncClient, key: Keypair, run_id: str) -> Any:
    """A coordinator account of its first size, made by the public client."""
    address = say.coordinator_address(PROGRAM_ID, run_id)
    rent = (await client.get_minimum_balance_for_rent_exemption(layout.RUN.itemsize)).value
    made = say.said(Tag.InitCoordinator, run_id.encode(), lamports=rent, open=1)
    told = say.instruction(PROGRAM_ID, made, key.pubkey(), address, say.SYSTEM)
    newest = (await client.get_latest_blockhash()).value.blockhash
    sent = (await client.send_transaction(signed([told], key, newest))).value
    done = await client.confirm_transaction(sent, Confirmed, sleep_seconds=0.05)
    assert done.value[0].err is None
    return address


async def test_the_public_client_makes_a_run_and_reads_it() -> None:
    async with serving() as net, AsyncClient(net.url) as client:
        assert await client.is_connected()
        assert (await client.get_version()).value.solana_core
        key = await funded(client)
        assert (await client.get_balance(key.pubkey())).value == 10 * SOL
        address = await create(client, key, "public")
        found = (await client.get_account_info(address)).value
        assert found is not None
        assert found.owner == PROGRAM_ID
        assert len(found.data) == layout.GROWTH
        spent = 10 * SOL - (await client.get_balance(key.pubkey())).value - found.lamports
        assert spent == 5000, "the base fee of one signature"


async def test_the_public_client_hears_of_a_change() -> None:
    async with serving() as net, AsyncClient(net.url) as client:
        key = await funded(client)
        address = await create(client, key, "watched")
        place = f"ws://127.0.0.1:{net.port + 1}"
        async with asyncio.timeout(60), SolanaWsClient(place) as socket:
            await socket.account_subscribe(pubkey=address, commitment=Processed, encoding="base64")
            grow = say.instruction(PROGRAM_ID, say.said(Tag.Grow), key.pubkey(), address)
            newest = (await client.get_latest_blockhash()).value.blockhash
            await client.send_transaction(signed([grow], key, newest))
            heard: Any = await socket.recv()
            assert len(heard.result.value.data) == 2 * layout.GROWTH


async def test_the_public_client_hears_why_the_program_refuses() -> None:
    async with serving() as net, AsyncClient(net.url) as client:
        key = await funded(client)
        address = await create(client, key, "refusing")
        tick = say.instruction(PROGRAM_ID, say.said(Tag.Tick), key.pubkey(), address)
        newest = (await client.get_latest_blockhash()).value.blockhash
        simulated = (await client.simulate_transaction(signed([tick], key, newest))).value
        assert simulated.err is not None
        assert simulated.err.err.code == layout.ERRORS["WrongSize"][0]


async def rpc(net: Localnet, method: str, *params: Any) -> Any:
    return await raw(net, json.dumps({"id": 1, "method": method, "params": params}).encode())


async def raw(net: Localnet, body: bytes, head: str = "POST / HTTP/1.1") -> Any:
    reader, writer = await asyncio.open_connection(net.host, net.port)
    writer.write(
        f"{head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    )
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    status, _, rest = answer.partition(b"\r\n\r\n")
    return json.loads(rest) if b"200 OK" in status else rest.decode()


@pytest.mark.parametrize(
    ("method", "params", "why"),
    [
        ("getNothing", [], "Method not found"),
        ("getBalance", [], "Invalid param"),
        ("getBalance", ["x"], "Invalid param"),
        ("getSignatureStatuses", [["x"]], "Invalid param"),
        ("getSignatureStatuses", [["x"] * 257], "Too many"),
        ("isBlockhashValid", [7], "Invalid param"),
        ("requestAirdrop", [str(PROGRAM_ID), 10**20], "the faucet gives"),
        ("getMinimumBalanceForRentExemption", [2**60], "no account is that large"),
        ("sendTransaction", ["!", {"encoding": "base64"}], "invalid base64"),
        ("sendTransaction", ["AAAA", {"encoding": "base64"}], "failed to deserialize"),
        ("sendTransaction", ["AAAA"], "base64 transactions only"),
        (
            "sendTransaction",
            [base64.b64encode(bytes(1233)).decode(), {"encoding": "base64"}],
            "too large",
        ),
    ],
)
async def test_what_makes_no_sense_is_answered_with_an_error(
    method: str, params: list[Any], why: str
) -> None:
    async with serving() as net:
        answer = await rpc(net, method, *params)
        assert why in answer["error"]["message"]


async def test_what_is_no_request_is_refused() -> None:
    async with serving() as net:
        assert (await raw(net, b"{"))["error"]["code"] == -32700
        assert (await raw(net, b"7"))["error"]["code"] == -32600
        assert "POST" in await raw(net, b"", "GET / HTTP/1.1")
        assert "Content-Length" in await raw(net, b"x" * 70_000)


async def transfer_to(net: Localnet, key: Keypair) -> tuple[Any, str]:
    other = Keypair().pubkey()
    move = transfer(TransferParams(from_pubkey=key.pubkey(), to_pubkey=other, lamports=SOL))
    made = signed([move], key, net.ledger.blockhash[0])
    return other, base64.b64encode(bytes(made)).decode()


async def slots(net: Localnet, count: int) -> None:
    """Until so many slots have gone by."""
    async with asyncio.timeout(60):
        for _ in range(count):
            await net.next_slot.wait()


async def test_a_dropped_transaction_leaves_no_trace_and_may_be_sent_again() -> None:
    key = Keypair()
    async with serving(LocalLedger(faults=Faults(drop=1.0))) as net:
        net.ledger.airdrop(key.pubkey(), 10 * SOL)
        other, text = await transfer_to(net, key)
        sent = (await rpc(net, "sendTransaction", text, {"encoding": "base64"}))["result"]
        await slots(net, 2)
        assert (await rpc(net, "getSignatureStatuses", [sent]))["result"]["value"] == [None]
        net.ledger.faults.drop = 0.0
        for _ in range(2):  # once is enough, and twice does not pay twice
            await rpc(net, "sendTransaction", text, {"encoding": "base64"})
        assert (await rpc(net, "getBalance", str(other)))["result"]["value"] == SOL


async def test_a_transaction_that_waits_expires_with_a_fork() -> None:
    key = Keypair()
    async with serving(LocalLedger(faults=Faults(delay=0.5))) as net:
        net.ledger.airdrop(key.pubkey(), 10 * SOL)
        other, text = await transfer_to(net, key)
        await rpc(net, "sendTransaction", text, {"encoding": "base64"})
        net.ledger.fork()
        await slots(net, 3)
        assert (await rpc(net, "getBalance", str(other)))["result"]["value"] == 0
        answer = await rpc(net, "sendTransaction", text, {"encoding": "base64"})
        assert answer["error"]["data"]["err"] == "BlockhashNotFound"


async def test_a_node_that_is_down_hangs_up_until_it_is_back() -> None:
    async with serving() as net:
        net.go_down()
        with pytest.raises((ConnectionError, json.JSONDecodeError)):
            await rpc(net, "getHealth")
        net.come_back()
        assert (await rpc(net, "getHealth"))["result"] == "ok"


async def test_a_forged_signature_is_not_run() -> None:
    key = Keypair()
    async with serving() as net:
        net.ledger.airdrop(key.pubkey(), 10 * SOL)
        other, text = await transfer_to(net, key)
        wire = bytearray(base64.b64decode(text))
        wire[5] ^= 1
        forged = base64.b64encode(bytes(wire)).decode()
        for skip in (False, True):
            await rpc(net, "sendTransaction", forged, {"encoding": "base64", "skipPreflight": skip})
        assert (await rpc(net, "getBalance", str(other)))["result"]["value"] == 0


def test_a_transaction_that_no_cluster_takes_is_not_made() -> None:
    key = Keypair()
    large = say.instruction(PROGRAM_ID, bytes(1100), key.pubkey(), PROGRAM_ID)
    with pytest.raises(TransactionTooLarge, match="a cluster takes 1232"):
        signed([large], key, LocalLedger().blockhash[0])


@pytest.mark.parametrize("price", [0, 77])
def test_a_transaction_says_what_it_may_use_and_pays(price: int) -> None:
    key = Keypair()
    tick = say.instruction(PROGRAM_ID, say.said(Tag.Tick), key.pubkey(), PROGRAM_ID)
    message = signed([tick], key, LocalLedger().blockhash[0], price=price).message
    asked = [bytes(part.data) for part in message.instructions]
    limit, prices = asked[0], asked[1:-1]
    assert limit == b"\x02" + COMPUTE_UNITS.to_bytes(4, "little")
    assert prices == ([b"\x03" + price.to_bytes(8, "little")] if price else [])
    assert COMPUTE_UNITS <= 1_400_000


def test_want_of_lamports_is_known_by_all_its_names() -> None:
    poor = [
        "AccountNotFound",
        "InsufficientFundsForFee",
        as_json(TransactionErrorInsufficientFundsForRent(1)),
        {"InstructionError": [1, {"Custom": 1}]},
        {"InstructionError": [1, "InsufficientFunds"]},
    ]
    assert all(map(is_poor, poor))
    for other in (None, 7, "x", ["AccountNotFound"], {}, {"InstructionError": [1, {"Custom": 2}]}):
        assert not is_poor(other)


def test_an_error_of_the_program_has_its_sentence() -> None:
    code = layout.ERRORS["NothingDue"][0]
    assert custom_error({"InstructionError": [1, {"Custom": code}]}) == layout.explain(code)
    for other in ("AccountNotFound", None, {"InstructionError": [0, "InvalidArgument"]}, {"X": 1}):
        assert custom_error(other) is None


async def test_an_account_can_be_read_compressed_and_in_part() -> None:
    key = Keypair()
    async with serving() as net, AsyncClient(net.url) as client:
        net.ledger.airdrop(key.pubkey(), 10 * SOL)
        address = await create(client, key, "small")
        options = {"encoding": "base64+zstd"}
        packed = (await rpc(net, "getAccountInfo", str(address), options))["result"]["value"][
            "data"
        ]
        assert len(packed[0]) < 1000
        part = {"encoding": "base64", "dataSlice": {"offset": 8, "length": 4}}
        cut = (await rpc(net, "getAccountInfo", str(address), part))["result"]["value"]["data"]
        assert base64.b64decode(cut[0]) == layout.VERSION.to_bytes(4, "little")
        with pytest.raises(ValueError, match="creation did not end"):
            read(bytes(net.ledger.svm.get_account(address).data))


async def test_a_port_that_is_taken_is_said_to_be() -> None:
    async with serving() as net:
        for port in (net.port, net.port + 1):
            with pytest.raises(OSError, match=f"port {port} of 127.0.0.1 is taken; --port names"):
                async with serving(port=port):
                    pass
