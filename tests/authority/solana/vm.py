"""The program on the real virtual machine, and one run in it."""

from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple, Self

from solders.account import Account
from solders.clock import Clock
from solders.compute_budget import set_compute_unit_limit
from solders.instruction import Instruction
from solders.litesvm import LiteSVM
from solders.message import Message
from solders.pubkey import Pubkey
from solders.signature import Signature
from solders.transaction import Transaction
from solders.transaction_metadata import FailedTransactionMetadata

from folkmoot.authority.solana import account, layout
from folkmoot.authority.solana import instructions as say
from folkmoot.authority.solana.build import shipped
from folkmoot.authority.solana.layout import Tag
from folkmoot.core.coordinator import Coordinator, Run

PROGRAM = Pubkey(sha256(b"program").digest())
OWNER = Pubkey(sha256(b"owner").digest())
SYSTEM_OWNER = Pubkey.default()
RICH = 10**12
PACKET = 1232
COMPUTE_MAX = 1_400_000


class Sent(NamedTuple):
    error: str  # "" when it was taken; else the name of the error
    units: int


class Vm:
    """Signatures are not checked: a test speaks for whom it likes, and says so with `signer`."""

    def __init__(self, program: bytes | None = None) -> None:
        self.svm = LiteSVM().with_sigverify(False).with_transaction_history(0)
        self.svm.add_program(PROGRAM, shipped() if program is None else program)
        self.blockhash = self.svm.latest_blockhash()
        self.numbers = count(1)
        self.fund(OWNER)

    def fund(self, key: Pubkey, lamports: int = RICH) -> None:
        self.svm.set_account(key, Account(lamports, b"", SYSTEM_OWNER))

    def at(self, seconds: int) -> None:
        old = self.svm.get_clock()
        self.svm.set_clock(
            Clock(
                old.slot, old.epoch_start_timestamp, old.epoch, old.leader_schedule_epoch, seconds
            )
        )

    def send(self, *instructions: Instruction, payer: Pubkey, signers: int = 1) -> Sent:
        limit = set_compute_unit_limit(COMPUTE_MAX)
        message = Message.new_with_blockhash([limit, *instructions], payer, self.blockhash)
        fake = [Signature(next(self.numbers).to_bytes(64, "little")) for _ in range(signers)]
        transaction = Transaction.populate(message, fake)
        assert len(bytes(transaction)) <= PACKET, f"{len(bytes(transaction))} bytes do not fit"
        result = self.svm.send_transaction(transaction)
        failed = isinstance(result, FailedTransactionMetadata)
        meta = result.meta() if failed else result
        return Sent(_name(result.err()) if failed else "", meta.compute_units_consumed())

    def data(self, key: Pubkey) -> bytes:
        found = self.svm.get_account(key)
        return bytes(found.data) if found else b""


def _name(error: Any) -> str:
    inner = getattr(error, "err", None)
    code = getattr(inner, "code", None)
    return layout.explain(code)[0] if code is not None else str(inner or error)


class VmRun:
    """One run in a virtual machine. `template` is an account that is whole and not configured."""

    def __init__(self, vm: Vm, run: Run, template: Account | None = None, points: int = 0) -> None:
        self.vm, self.run = vm, run
        self.address = say.coordinator_address(PROGRAM, run.run_id)
        if template is None:
            self.create()
        else:
            vm.svm.set_account(self.address, template)
        assert not self.update(run, points).error

    @classmethod
    def bare(cls, vm: Vm, run: Run, **fields: Any) -> Self:
        """One that is created and not configured."""
        made = cls.__new__(cls)
        made.vm, made.run = vm, run
        made.address = say.coordinator_address(PROGRAM, run.run_id)
        made.create(**fields)
        return made

    def create(self, **fields: Any) -> None:
        rent = self.vm.svm.minimum_balance_for_rent_exemption(layout.RUN.itemsize)
        fields = {"lamports": rent, "join_authority": bytes(OWNER), "open": 1, **fields}
        made = say.said(Tag.InitCoordinator, self.run.run_id.encode(), **fields)
        sent = self.tell(OWNER, made, say.SYSTEM)
        assert not sent.error, sent.error
        grow = say.instruction(PROGRAM, say.said(Tag.Grow), OWNER, self.address)
        steps = len(layout.GROWN) - 1
        for at in range(0, steps, 16):
            several = [grow] * min(16, steps - at)
            assert not self.vm.send(*several, payer=OWNER).error

    def update(self, run: Run, points: int = 0) -> Sent:
        for draft in say.drafts(run):
            assert not self.tell(OWNER, draft).error
        return self.tell(OWNER, say.update(run, points))

    def tell(self, signer: Pubkey, data: bytes, *more: Pubkey) -> Sent:
        told = say.instruction(PROGRAM, data, signer, self.address, *more)
        return self.vm.send(told, payer=signer)

    @property
    def data(self) -> bytes:
        return self.vm.data(self.address)

    @property
    def record(self) -> Any:
        return account.read(self.data)

    @property
    def state(self) -> Coordinator:
        return account.state_of(self.record)
