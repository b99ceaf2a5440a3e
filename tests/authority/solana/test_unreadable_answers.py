"""A node whose answers cannot be read: another one is asked, or a sentence is said."""

from typing import Any

import pytest

from authority.solana.localnet_run import SLOT, on_chain
from authority.solana.lying_node import (
    DEEP,
    goes_on,
    lying,
    only,
    result,
    says,
)
from folkmoot.authority.solana import answers, rpc
from folkmoot.authority.solana.instructions import PROGRAM_ID, coordinator_address
from folkmoot.authority.solana.localnet.serve import serving

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
