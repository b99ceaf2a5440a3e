"""Instructions that nobody would make, sent to runs that are under way.

A scene is a run's account at some moment of a random sequence, or of an epoch of 256 clients, with
what was said to it then. An input is something said, damaged: its bytes, its signer, its accounts,
or all of them. Inputs follow from their number alone; one that is taken stays, so that the next
ones find a run that no honest client has made. Whatever comes: what is refused has changed nothing,
what is taken leaves an account that is whole, and none costs more than the goal.
"""

from collections import Counter
from hashlib import sha256
from random import Random
from typing import NamedTuple

import numpy as np
from solders.account import Account
from solders.instruction import AccountMeta, Instruction
from solders.pubkey import Pubkey

from authority.solana.crowd import play_epoch
from authority.solana.differential import IDS, START, play, whole_template
from authority.solana.vm import OWNER, PROGRAM, Sent, Vm
from folkmoot.authority.solana import account, layout
from folkmoot.authority.solana import instructions as say
from folkmoot.authority.solana.layout import Tag

GOAL = 400_000  # compute units
SEQUENCES = 12  # that scenes are taken from
EVERY = 16  # messages of a sequence between two scenes
AT_A_SCENE = 50  # inputs
LONGEST = 800  # bytes of an instruction; with accounts and signature that is nearly a packet
STRANGER = Pubkey(sha256(b"stranger").digest())
RUN = say.coordinator_address(PROGRAM, "run")
# Numbers at which a comparison that is wrong shows.
EDGES = (0, 1, 2, 31, 32, 63, 64, 65, 255, 256, 257, 511, 512, 4096, 65535, *(
    edge + by for edge in (2**31, 2**32, 2**63, 2**64) for by in (-1, 0) if edge + by < 2**64
))  # fmt: skip
# What the virtual machine says when a program read, wrote or spent what it must not.
CRASHES = ("ProgramFailedToComplete", "ComputationalBudgetExceeded", "Modified", "Unbalanced")


class Broken(AssertionError):
    """An input did what none may."""


class Scene(NamedTuple):
    account: Account
    seconds: int
    said: list[tuple[Pubkey, bytes]]  # what was said then, by whom


class Recorder(Vm):
    """Keeps scenes of what is played on it."""

    def __init__(self) -> None:
        super().__init__()
        self.scenes: list[Scene] = []
        self.heard = 0

    def send(self, *instructions: Instruction, payer: Pubkey, signers: int = 1) -> Sent:
        data, found = bytes(instructions[0].data), self.svm.get_account(RUN)
        if found is not None and len(found.data) == layout.RUN.itemsize:
            if self.heard % EVERY == 0:
                self.scenes.append(Scene(found, self.svm.get_clock().unix_timestamp, []))
            self.scenes[-1].said.append((payer, data))
            self.heard += 1
        return super().send(*instructions, payer=payer, signers=signers)


def scenes() -> list[Scene]:
    recorder = Recorder()
    template = whole_template(recorder)
    for number in range(SEQUENCES):
        play(number, recorder, template)
    play_epoch(recorder, template, 256)
    return recorder.scenes


class Fuzzer:
    """`counted` says what became of the inputs."""

    def __init__(self, program: bytes | None = None) -> None:
        self._scenes = scenes()
        self._said = [data for scene in self._scenes for _, data in scene.said]
        self._vm = Vm(program)
        self.counted: Counter[str] = Counter()
        self.most_units = 0
        people = {signer for scene in self._scenes for signer, _ in scene.said}
        for key in (*people, *map(Pubkey, IDS), STRANGER):
            self._vm.fund(key)

    def play(self, number: int) -> None:
        """One scene and its inputs; raises `Broken`."""
        chance = Random(number)
        scene = chance.choice(self._scenes)
        self._vm.svm.set_account(RUN, scene.account)
        seconds, first = scene.seconds, account_of(scene.account)
        for at in range(AT_A_SCENE):
            if chance.random() < 0.1:
                seconds = max(START // 2, seconds + chance.choice((1, 2, 30, 10**4, -(10**4))))
            self._vm.at(seconds)
            signer, told = self._input(scene, chance)
            try:
                self._check(first, signer, told)
            except Broken as error:
                told_hex = bytes(told.data).hex()
                raise Broken(f"scene {number}, input {at}: {error}\n  {told_hex}") from None

    def _input(self, scene: Scene, chance: Random) -> tuple[Pubkey, Instruction]:
        signer, data = chance.choice(scene.said)
        if chance.random() < 0.15:
            data = say.said(chance.choice(list(Tag)), chance.randbytes(chance.randrange(64)))
        if chance.random() < 0.9:
            data = damaged(data, self._said, chance)
        if chance.random() < 0.2:
            signer = chance.choice((OWNER, STRANGER, Pubkey(chance.choice(IDS))))
        return signer, Instruction(PROGRAM, data, _accounts(signer, chance))

    def _check(self, first: account.Record, signer: Pubkey, told: Instruction) -> None:
        before = self._vm.svm.get_account(RUN)
        assert before is not None
        sent = self._vm.send(told, payer=signer)
        self.counted[sent.error or "taken"] += 1
        self.most_units = max(self.most_units, sent.units)
        if sent.units > GOAL or any(crash in sent.error for crash in CRASHES):
            raise Broken(f"{sent.units} units, {sent.error or 'taken'}")
        after = self._vm.svm.get_account(RUN)
        if sent.error:
            if after != before:
                raise Broken(f"it was refused ({sent.error}), and the account changed")
        elif after is None or not after.lamports:
            if signer != OWNER or bytes(told.data) != say.said(Tag.FreeCoordinator):
                raise Broken("the account was closed")
            self._vm.svm.set_account(RUN, before)
        else:
            problem = unsound(first, account_of(before), account_of(after))
            if problem:
                raise Broken(f"it was taken, and {problem}")


def damaged(data: bytes, others: list[bytes], chance: Random) -> bytes:
    """Some bytes of an instruction are others now; at times there are fewer, or more."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(8, len(made)) if len(made) > 8 else 0
        what = chance.random()
        if what < 0.25 and made:
            made[at] ^= 1 << chance.randrange(8)
        elif what < 0.65:
            size = chance.choice((1, 2, 4, 8))
            at -= at % size
            edge = chance.choice(EDGES) if chance.random() < 0.7 else chance.randrange(2**64)
            made[at : at + size] = (edge % 256**size).to_bytes(size, "little")
        elif what < 0.80:
            made[at:] = chance.choice(others)[at : len(made)]
        elif what < 0.90:
            made[:8] = chance.randrange(18).to_bytes(8, "little")
        elif what < 0.95:
            del made[at:]
        else:
            made += chance.randbytes(chance.randrange(1, 40))
    return bytes(made[:LONGEST])


def _accounts(signer: Pubkey, chance: Random) -> list[AccountMeta]:
    """Mostly the right ones."""
    metas = [AccountMeta(signer, True, True), AccountMeta(RUN, False, True)]
    if chance.random() < 0.85:
        return metas
    for _ in range(chance.randrange(1, 4)):
        grant = say.grant_address(PROGRAM, RUN, signer)
        key = chance.choice((RUN, signer, STRANGER, say.SYSTEM, PROGRAM, grant))
        meta = AccountMeta(key, key == signer, key in (RUN, signer) and chance.random() < 0.7)
        match chance.randrange(3):
            case 0:
                metas.append(meta)
            case 1:
                metas[chance.randrange(len(metas))] = meta
            case _:
                chance.shuffle(metas)
    return metas[: chance.choice((len(metas), len(metas), 1))]


def account_of(found: Account) -> account.Record:
    data = bytes(found.data)
    if len(data) != layout.RUN.itemsize:
        raise Broken(f"the account has {len(data)} bytes")
    return account.read(data)


FIXED = ("magic", "version", "authority", "join_authority", "run_id", "run_id_len", "open")


def unsound(first: account.Record, before: account.Record, after: account.Record) -> str:
    """What is wrong with an account that the program has written, or ""; `first` was sound."""
    for field in FIXED:
        if np.any(before[field] != after[field]):
            return f"{field} changed"
    if int(after["sequence"]) - int(before["sequence"]) not in (0, 1):
        return f"sequence goes from {before['sequence']} to {after['sequence']}"
    return _uncountable(after) or _misplaced(after) or _unreadable(after, first)


def _uncountable(run: account.Record) -> str:
    """A count above the room that there is."""
    epoch, owed = run["epoch"], run["progress"]["owed_count"]
    counts = [
        ("owed_count", owed, layout.OWED),
        ("expelled_count", run["expelled_count"], layout.EXPELLED),
        ("pending_count", run["pending_count"], layout.SLOTS),
        ("client_count", epoch["client_count"], layout.CLIENTS),
        ("leaving_count", epoch["leaving_count"], layout.LEAVING),
        ("location_len", run["checkpoint"]["location_len"], layout.LOCATION),
        ("address_len", run["slots"]["address_len"].max(), layout.ADDRESS),
        ("span_count", epoch["rounds"]["span_count"].max(), layout.SPANS),
        ("witness_count", epoch["rounds"]["witness_count"].max(), layout.WITNESSES),
        ("size", epoch["rounds"]["election"]["size"].max(), layout.CLIENTS),
        ("elected_count", epoch["rounds"]["election"]["elected_count"].max(), layout.WITNESSES),
        ("score", epoch["score"].max(), layout.WITNESSES),
    ]
    return next((f"{name} is {n}" for name, n, most in counts if n > most), "")


def _misplaced(run: account.Record) -> str:
    """Everybody has one slot, in the order of the ids, and no slot is used that nobody has."""
    epoch = run["epoch"]
    waiting = run["pending"][: run["pending_count"]].tolist()
    here = epoch["clients"][: epoch["client_count"]].tolist()
    for several in (waiting, here):
        if max(several, default=0) >= layout.SLOTS:
            return f"there is no slot {max(several)}"
        ids = [run["slots"][slot]["id"].tobytes() for slot in several]
        if ids != sorted(set(ids)):
            return "clients are not in the order of their ids"
    used = np.unpackbits(run["used"], bitorder="little")
    if set(np.flatnonzero(used).tolist()) != {*waiting, *here}:
        return "a slot is used that nobody has, or the other way round"
    gone = int(np.count_nonzero(epoch["left"][: len(here)]))
    if not gone == epoch["absent_count"] == len(account.places(epoch["absent"])):
        return f"{epoch['absent_count']} are counted absent, and {gone} have left"
    return ""


def _unreadable(run: account.Record, first: account.Record) -> str:
    """Python reads it, with the file that it had at `first`: an owner's need not be true."""
    if first["phase"] == 0 or run["phase"] == 0:
        return ""
    if run["config"] != first["config"] or np.any(run["run"] != first["run"]):
        run = run.copy()
        run["config"], run["run"] = first["config"], first["run"]
    try:
        account.state_of(run)
    except account.AccountError as error:
        return str(error)
    return ""
