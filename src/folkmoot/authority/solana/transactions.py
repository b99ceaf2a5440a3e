"""Transactions: made, bounded, and what became of them."""

from collections.abc import Sequence
from typing import Any

from solders.compute_budget import set_compute_unit_limit, set_compute_unit_price
from solders.hash import Hash
from solders.instruction import Instruction
from solders.keypair import Keypair
from solders.message import Message
from solders.transaction import VersionedTransaction

from folkmoot.authority.solana import layout

PACKET = 1232  # bytes of a transaction that a cluster takes
COMPUTE_UNITS = 800_000  # twice what an instruction of the program needs with 256 clients
LAMPORTS_PER_SIGNATURE = 5000


class TooLarge(ValueError):
    """A transaction that no cluster takes."""


def signed(
    instructions: Sequence[Instruction],
    signer: Keypair,
    blockhash: Hash,
    units: int = COMPUTE_UNITS,
    price: int = 0,
) -> VersionedTransaction:
    """A transaction that `signer` signs and pays; `price` is in millionths of a lamport a unit."""
    budget = [set_compute_unit_limit(units)]
    if price:
        budget.append(set_compute_unit_price(price))
    message = Message.new_with_blockhash([*budget, *instructions], signer.pubkey(), blockhash)
    made = VersionedTransaction(message, [signer])
    size = len(bytes(made))
    if size > PACKET:
        raise TooLarge(f"the transaction has {size} bytes, and a cluster takes {PACKET}")
    return made


def custom_error(error: Any) -> tuple[str, str] | None:
    """(name, sentence) when the program refused it, of an error as JSON-RPC tells it."""
    if not isinstance(error, dict) or not isinstance(error.get("InstructionError"), list):
        return None
    detail = error["InstructionError"]
    code = detail[1].get("Custom") if len(detail) == 2 and isinstance(detail[1], dict) else None
    return layout.explain(code) if isinstance(code, int) else None
