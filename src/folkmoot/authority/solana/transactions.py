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
# Why a transaction is not run whose signer has too little; the number is the system program's word.
POOR = ("AccountNotFound", "InsufficientFundsForFee", "InsufficientFundsForRent")
NEGATIVE_LAMPORTS = 1


class TransactionTooLarge(ValueError):
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
        raise TransactionTooLarge(f"the transaction has {size} bytes, and a cluster takes {PACKET}")
    return made


def is_poor(error: Any) -> bool:
    """Whether it is for want of lamports, of an error as JSON-RPC tells it."""
    names = error if isinstance(error, dict) else (error,)
    return any(name in POOR for name in names) or _instruction_error(error) in (
        "InsufficientFunds",
        {"Custom": NEGATIVE_LAMPORTS},
    )


def custom_error(error: Any) -> tuple[str, str] | None:
    """(name, sentence) when the program refused it."""
    inner = _instruction_error(error)
    code = inner.get("Custom") if isinstance(inner, dict) else None
    return layout.explain(code) if isinstance(code, int) and 0 <= code < 2**32 else None


def _instruction_error(error: Any) -> Any:
    detail = error.get("InstructionError") if isinstance(error, dict) else None
    return detail[1] if isinstance(detail, list) and len(detail) == 2 else None
