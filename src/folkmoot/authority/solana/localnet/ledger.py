"""What a cluster keeps: accounts, slots, recent blockhashes, what became of transactions.

LiteSVM runs the transactions. Around it is what it does not have and a client depends on: a slot
every 400 ms with the clock of this machine, blockhashes that expire after 150 slots, the packet
limit, statuses that ripen from processed to finalized; and faults, to see what a client makes of
them.
"""

import random
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from solders.account import Account
from solders.clock import Clock
from solders.hash import Hash
from solders.litesvm import LiteSVM
from solders.pubkey import Pubkey
from solders.signature import Signature
from solders.transaction import VersionedTransaction
from solders.transaction_metadata import FailedTransactionMetadata, SimulatedTransactionInfo

from folkmoot.authority.solana.build import shipped
from folkmoot.authority.solana.instructions import PROGRAM_ID
from folkmoot.authority.solana.transactions import PACKET

SLOT_SECONDS = 0.4
BLOCKHASH_SLOTS = 150
FINAL_SLOTS = 32
STATUSES_MAX = 100_000
FAUCET_MAX = 1_000_000_000_000


@dataclass
class Faults:
    """What goes wrong on purpose."""

    drop: float = 0.0  # share of transactions that are taken and never run
    delay: float = 0.0  # seconds before a transaction runs
    down: bool = False  # nobody answers
    mute: bool = False  # subscriptions stay open and say nothing


class LedgerStatus(NamedTuple):
    slot: int
    error: Any  # as JSON-RPC tells it, or None


class NodeError(Exception):
    """An answer that is an error of JSON-RPC."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class LocalLedger:
    """The cluster's state. Everything happens in the thread of whoever calls."""

    def __init__(self, program: bytes | None = None, faults: Faults | None = None) -> None:
        self.svm = LiteSVM().with_blockhash_check(False)
        self.svm.add_program(PROGRAM_ID, shipped() if program is None else program)
        self.faults = faults or Faults()
        self.slot = 0
        self._blockhashes: OrderedDict[Hash, int] = OrderedDict()  # with their last valid height
        self.statuses: OrderedDict[Signature, LedgerStatus] = OrderedDict()
        self.changed: Callable[[Pubkey], None] = lambda key: None
        """Called with every account that a transaction may have written."""
        self._genesis = random.randbytes(8)
        self._behind: tuple[int, dict[Pubkey, Account | None]] | None = None
        self.next_slot()

    def next_slot(self) -> None:
        self.slot += 1
        clock = self.svm.get_clock()
        self.svm.set_clock(
            Clock(
                self.slot,
                clock.epoch_start_timestamp,
                clock.epoch,
                clock.leader_schedule_epoch,
                max(int(time.time()), clock.unix_timestamp),
            )
        )
        made = Hash(sha256(self._genesis + self.slot.to_bytes(8, "little")).digest())
        self._blockhashes[made] = self.slot + BLOCKHASH_SLOTS
        while next(iter(self._blockhashes.values())) < self.slot:
            self._blockhashes.popitem(last=False)

    def fork(self) -> None:
        """What was recent is no more: transactions that wait for their turn never get one."""
        self._blockhashes.clear()
        self._genesis = random.randbytes(8)
        self.next_slot()

    def fall_behind(self) -> None:
        """Show accounts as they are now, whatever happens to them, until `catch_up`."""
        self._behind = self.shown_slot, {}

    def catch_up(self) -> None:
        self._behind = None

    @property
    def shown_slot(self) -> int:
        """The newest that is over: all that happened in it is shown."""
        return self._behind[0] if self._behind else self.slot - 1

    @property
    def blockhash(self) -> tuple[Hash, int]:
        """The newest, and the last height at which it is valid."""
        newest = next(reversed(self._blockhashes))
        return newest, self._blockhashes[newest]

    @property
    def genesis(self) -> Hash:
        return Hash(sha256(self._genesis).digest())

    def valid(self, blockhash: Hash) -> bool:
        return blockhash in self._blockhashes

    def account(self, key: Pubkey) -> Account | None:
        if self._behind and key in self._behind[1]:
            return self._behind[1][key]
        found = self.svm.get_account(key)
        return found if found is not None and found.lamports else None

    def read(self, wire: bytes) -> VersionedTransaction:
        """A transaction as it came, checked as far as a cluster does before it runs."""
        if len(wire) > PACKET:
            raise NodeError(-32602, f"base64 encoded transaction too large: {len(wire)} bytes")
        try:
            made = VersionedTransaction.from_bytes(wire)
            made.sanitize()
        except Exception as error:
            raise NodeError(-32602, f"failed to deserialize transaction: {error}") from None
        return made

    def simulate(self, made: VersionedTransaction) -> tuple[Any, list[str], int]:
        """(error, logs, compute units) that it would have now."""
        if not self.valid(made.message.recent_blockhash):
            return "BlockhashNotFound", [], 0
        result = self.svm.simulate_transaction(made)
        if isinstance(result, SimulatedTransactionInfo):
            return None, result.meta().logs(), result.meta().compute_units_consumed()
        return as_json(result.err()), result.meta().logs(), result.meta().compute_units_consumed()

    def run(self, made: VersionedTransaction) -> None:
        """Run it now; one that expired or ran already leaves no trace."""
        signature = made.signatures[0]
        if signature in self.statuses or not self.valid(made.message.recent_blockhash):
            return
        if self._behind:
            for key in made.message.account_keys:
                self._behind[1].setdefault(key, self.account(key))
        result = self.svm.send_transaction(made)
        error = as_json(result.err()) if isinstance(result, FailedTransactionMetadata) else None
        if error in ("AlreadyProcessed", "BlockhashNotFound", "AccountNotFound"):
            return
        self.statuses[signature] = LedgerStatus(self.slot, error)
        while len(self.statuses) > STATUSES_MAX:
            self.statuses.popitem(last=False)
        for key in made.message.account_keys:
            self.changed(key)

    def airdrop(self, key: Pubkey, lamports: int) -> Signature:
        if not 0 < lamports <= FAUCET_MAX:
            raise NodeError(-32602, f"the faucet gives 1 to {FAUCET_MAX} lamports")
        had = self.svm.get_account(key)
        if had is not None and had.owner != Pubkey.default():
            raise NodeError(-32602, "the account belongs to a program")
        self.svm.set_account(
            key, Account((had.lamports if had else 0) + lamports, b"", Pubkey.default())
        )
        signature = Signature(random.randbytes(64))
        self.statuses[signature] = LedgerStatus(self.slot, None)
        self.changed(key)
        return signature

    def confirmation(self, status: LedgerStatus) -> str:
        age = self.slot - status.slot
        return "finalized" if age >= FINAL_SLOTS else "confirmed" if age >= 1 else "processed"


def as_json(error: Any) -> Any:
    """A transaction's error as JSON-RPC tells it."""
    if (at := getattr(error, "account_index", None)) is not None:
        return {type(error).__name__.removeprefix("TransactionError"): {"account_index": at}}
    inner = getattr(error, "err", None)
    if inner is None:
        return str(error).rpartition(".")[2]
    code = getattr(inner, "code", None)
    told = {"Custom": code} if code is not None else str(inner).rpartition(".")[2]
    return {"InstructionError": [error.index, told]}
