"""Every instruction on the virtual machine: what it checks of accounts, signers and bytes."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from msgspec.structs import replace
from solders.account import Account
from solders.instruction import AccountMeta, Instruction
from solders.pubkey import Pubkey

from authority.solana.vm import OWNER, PROGRAM, RICH, Vm, VmRun
from core.coordinator.strategies import attest
from folkmoot.authority.solana import account, layout
from folkmoot.authority.solana import instructions as say
from folkmoot.authority.solana.layout import Tag
from folkmoot.authority.solana.seeds import HashChain
from folkmoot.authority.solana.subset import numbers
from folkmoot.core.coordinator import Phase, Run
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.core.coordinator.receive import IN_ROUND

ANN, BOB, EVE = (Pubkey(sha256(name).digest()) for name in (b"ann", b"bob", b"eve"))
CONFIG = CoordinatorConfig(total_steps=5, min_clients=2, max_clients=9)
JOIN = say.said(Tag.JoinRun, b"here", address_len=4, reveal=HashChain(b"x", 2).end)
CLIENT_TAGS = [tag for tag in Tag if tag >= Tag.JoinRun]
names = iter(range(10**6))


@pytest.fixture
def run(vm: Vm) -> VmRun:
    for key in (OWNER, ANN, BOB, EVE):
        vm.fund(key)
    vm.at(1000)
    return VmRun(
        vm, Run(run_id=f"run-{next(names)}", config=CONFIG, model=Model(checkpoint="s3://x"))
    )


def usual(tag: Tag) -> bytes:
    """An instruction that is well formed."""
    made = {Tag.JoinRun: JOIN, Tag.Draft: say.said(Tag.Draft, b"x")}
    return made.get(tag, say.said(tag))


def metas(
    signer: Pubkey, *more: Pubkey, signs: bool = True, writes: bool = True
) -> list[AccountMeta]:
    return [AccountMeta(signer, signs, True), *(AccountMeta(key, False, writes) for key in more)]


@pytest.mark.parametrize("tag", [tag for tag in Tag if tag != Tag.InitCoordinator], ids=str)
def test_every_instruction_needs_a_signer_and_the_right_account(run: VmRun, tag: Tag) -> None:
    vm, data = run.vm, usual(tag)

    def error(accounts: list[AccountMeta]) -> str:
        return vm.send(Instruction(PROGRAM, data, accounts), payer=EVE).error

    assert error(metas(ANN, run.address, signs=False)) == "NotSigned"
    assert error(metas(EVE)) == "TooFewAccounts"
    assert error([]) == "TooFewAccounts"
    assert error(metas(EVE, *[run.address] * 4)) == "TooManyAccounts"
    assert error(metas(EVE, run.address, writes=False)) == "NotWritable"
    assert error(metas(EVE, BOB)) == "WrongOwner"


def spoiled(data: bytes) -> Iterator[tuple[bytes, str]]:
    yield b"", "WrongSize"
    yield data[: layout.GROWTH - 1], "WrongSize"
    yield b"\0" * 8 + data[8:], "WrongVersion"
    yield data[:8] + b"\x02\0\0\0" + data[12:], "WrongVersion"


@pytest.mark.parametrize("tag", [Tag.Grow, Tag.Update, Tag.JoinRun, Tag.Tick], ids=str)
def test_an_account_of_another_size_version_or_owner_is_refused(run: VmRun, tag: Tag) -> None:
    place = Pubkey(sha256(b"elsewhere").digest())
    told = say.instruction(PROGRAM, usual(tag), OWNER, place)
    for data, why in spoiled(run.data):
        run.vm.svm.set_account(place, Account(RICH, data, PROGRAM))
        assert run.vm.send(told, payer=OWNER).error == why
    run.vm.svm.set_account(place, Account(RICH, run.data, EVE))
    assert run.vm.send(told, payer=OWNER).error == "WrongOwner"


@pytest.mark.parametrize("size", [layout.GROWTH, layout.RUN.itemsize - 1, layout.RUN.itemsize + 8])
def test_an_account_that_is_not_whole_or_too_long_takes_no_message(run: VmRun, size: int) -> None:
    place = Pubkey(sha256(b"cut").digest())
    run.vm.svm.set_account(place, Account(RICH, (run.data + bytes(8))[:size], PROGRAM))
    for tag in (Tag.Update, *CLIENT_TAGS):
        told = say.instruction(PROGRAM, usual(tag), OWNER, place)
        assert run.vm.send(told, payer=OWNER).error == "WrongSize"


@pytest.mark.parametrize("tag", list(Tag), ids=str)
def test_bytes_too_few_or_too_many_are_refused(run: VmRun, tag: Tag) -> None:
    before = run.data
    whole = usual(tag)
    signer = OWNER if tag < Tag.JoinRun else ANN
    for data in (b"", whole[:7], whole[:-1], whole + b"x"):
        if tag == Tag.Draft and len(data) > 16:
            continue  # any number of bytes may follow
        more = (say.SYSTEM,) if tag == Tag.InitCoordinator else ()
        error = run.tell(signer, data, *more).error
        named = tag == Tag.InitCoordinator and len(data) > layout.INSTRUCTIONS[tag].itemsize
        assert error == ("WrongAddressOfAccount" if named else "BadInstruction")
    assert run.data == before


def test_an_unknown_instruction_is_refused(run: VmRun) -> None:
    for tag in (16, 2**32, 2**64 - 1):
        assert run.tell(ANN, tag.to_bytes(8, "little")).error == "BadInstruction"


def test_lengths_inside_an_instruction_are_not_believed(run: VmRun) -> None:
    most = 2**32 - 1
    for lie in (
        say.said(Tag.JoinRun, b"x", address_len=most),
        say.said(Tag.Witness, b"x", participant_len=65535, broadcast_len=65535),
        say.said(Tag.HealthCheck, bytes(2), count=most),
        say.said(Tag.HealthCheck, bytes(130), count=65),
        say.said(Tag.Checkpoint, b"x", location_len=most),
        say.said(Tag.CallGone, bytes(2), gone_count=most, equivocated_count=2),
        say.said(Tag.CallGone, bytes(130), gone_count=65),
    ):
        assert run.tell(ANN, lie).error == "BadInstruction"
    assert run.tell(ANN, say.said(Tag.JoinRun, b"x" * 257, address_len=257)).error == "WrongAddress"
    for offset in (layout.RUN_FILE, layout.RUN_FILE + 1, 2**64 - 1):
        assert run.tell(OWNER, say.said(Tag.Draft, b"x", offset=offset)).error == "BadInstruction"


@pytest.mark.parametrize(
    "tag", [Tag.Grow, Tag.Draft, Tag.Update, Tag.SetPaused, Tag.FreeCoordinator], ids=str
)
def test_only_the_owner_owns(run: VmRun, tag: Tag) -> None:
    assert run.tell(EVE, usual(tag)).error == "NotTheOwner"


def test_a_run_is_created_once_and_at_its_own_address(run: VmRun) -> None:
    made = say.said(Tag.InitCoordinator, run.run.run_id.encode(), lamports=10**9)
    assert run.tell(EVE, made, say.SYSTEM).error == "AlreadyThere"
    other = say.said(Tag.InitCoordinator, b"another", lamports=10**9)
    assert run.tell(EVE, other, say.SYSTEM).error == "WrongAddressOfAccount"
    assert run.tell(EVE, made, BOB).error == "NoSystemProgram"
    assert run.tell(EVE, say.said(Tag.Grow)).error == "NotTheOwner"
    assert run.tell(OWNER, say.said(Tag.Grow)).error == "WrongSize"


@pytest.mark.parametrize("name", ["", "-x", "a b", "x" * 65, "é"])
def test_a_name_that_is_none_makes_no_run(vm: Vm, name: str) -> None:
    address = say.coordinator_address(PROGRAM, name)
    made = say.said(Tag.InitCoordinator, name.encode(), lamports=10**9)
    told = say.instruction(PROGRAM, made, OWNER, address, say.SYSTEM)
    assert vm.send(told, payer=OWNER).error in ("WrongRun", "BadInstruction")


def test_lamports_sent_to_an_address_before_keep_no_run_away(vm: Vm) -> None:
    run = Run(run_id="squatted", config=CONFIG)
    vm.fund(say.coordinator_address(PROGRAM, "squatted"), 890_880)
    assert VmRun(vm, run).state.run == run


def test_who_cannot_pay_makes_nothing(vm: Vm) -> None:
    poor = Pubkey(sha256(b"poor").digest())
    vm.fund(poor, 3_000_000)
    made = say.said(Tag.InitCoordinator, b"poor", lamports=RICH)
    address = say.coordinator_address(PROGRAM, "poor")
    assert vm.send(say.instruction(PROGRAM, made, poor, address, say.SYSTEM), payer=poor).error
    assert vm.data(address) == b""
    nobody = Pubkey(sha256(b"nobody").digest())
    told = say.instruction(PROGRAM, JOIN, nobody, say.coordinator_address(PROGRAM, "squatted"))
    assert "AccountNotFound" in vm.send(told, payer=nobody).error


def test_a_run_without_a_configuration_takes_only_its_owner(vm: Vm) -> None:
    run = VmRun.bare(vm, Run(run_id="bare", config=CONFIG))
    vm.fund(ANN)
    for tag in CLIENT_TAGS:
        assert run.tell(ANN, usual(tag)).error == "NotConfigured"
    assert run.tell(OWNER, say.said(Tag.SetPaused, paused=1)).error == "NotConfigured"
    assert run.tell(OWNER, say.update(run.run, 0)).error == "DraftDiffers"
    assert not run.update(run.run).error
    assert run.state.phase is Phase.WaitingForMembers


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epoch_time", 0), ("epoch_time", 2**64 - 1), ("train_time", 0), ("train_time", 10**12),
        ("witness_time", 0), ("cooldown_time", 0), ("health_timeout", 0),
        ("health_timeout", 2**63), ("warmup_time", 2**40), ("waiting_time", 2**40),
        ("min_clients", 0), ("max_clients", 0), ("max_clients", 257), ("clients_to_begin", 1),
        ("clients_to_begin", 10), ("witness_nodes", 3), ("witness_nodes", 2**32 - 1),
        ("total_steps", 0), ("delay", 3), ("work_by_speed", 2), ("batch_start", 0),
        ("batch_start", 99), ("batch_end", 2**31), ("max_seq_len", 0), ("max_seq_len", 2**31),
        ("warmup_tokens", 2**53), ("root_len", 191), ("start_len", 257), ("run_len", 0),
        ("run_len", 4097), ("rounds_per_epoch", 2**32 - 1),
    ],
)  # fmt: skip
def test_a_configuration_that_breaks_a_rule_is_refused(run: VmRun, field: str, value: int) -> None:
    config: Any = numbers(run.run)
    config[field] = value
    assert run.tell(OWNER, say.said(Tag.Update, config=config)).error == "BadConfig"


def test_numbers_that_would_overflow_together_are_refused(run: VmRun) -> None:
    for changes in (
        {"total_steps": 2**31, "batch_end": 2**30, "max_seq_len": 4},
        {"batch_end": 2**30, "warmup_tokens": 2**52, "total_steps": 1, "max_seq_len": 1},
    ):
        config: Any = numbers(run.run)
        for field, value in changes.items():
            config[field] = value
        assert run.tell(OWNER, say.said(Tag.Update, config=config)).error == "BadConfig"


def test_a_closed_run_lets_in_who_is_granted_until_it_is_revoked(vm: Vm) -> None:
    run = VmRun.bare(vm, Run(run_id="closed", config=CONFIG), open=0, join_authority=bytes(BOB))
    assert not run.update(run.run).error
    for key in (ANN, BOB, EVE):
        vm.fund(key)
    grant = say.grant_address(PROGRAM, run.address, ANN)
    others = say.grant_address(PROGRAM, run.address, EVE)
    give = say.said(Tag.Authorize, grantee=bytes(ANN))
    assert run.tell(ANN, JOIN).error == "NotGranted"
    assert run.tell(ANN, JOIN, grant).error == "NotGranted"
    assert run.tell(EVE, give, grant, say.SYSTEM).error == "NotTheJoinAuthority"
    assert run.tell(BOB, give, grant).error == "TooFewAccounts"
    assert run.tell(BOB, give, grant, EVE).error == "NoSystemProgram"
    assert run.tell(BOB, give, others, say.SYSTEM).error == "WrongAddressOfAccount"
    assert run.tell(BOB, give, grant, say.SYSTEM).error == ""
    assert run.tell(BOB, give, grant, say.SYSTEM).error == "AlreadyThere"
    assert run.tell(EVE, JOIN, grant).error == "WrongGrant"
    forged = Account(RICH, vm.data(grant), EVE)
    vm.svm.set_account(others, forged)
    assert run.tell(ANN, JOIN, others).error == "NotGranted"
    assert run.tell(ANN, JOIN, run.address).error == "NotGranted"
    assert run.tell(ANN, JOIN, grant).error == ""
    assert run.tell(EVE, say.said(Tag.Revoke), grant).error == "NotTheJoinAuthority"
    assert run.tell(BOB, say.said(Tag.Revoke)).error == "TooFewAccounts"
    assert run.tell(BOB, say.said(Tag.Revoke), others).error == "NotGranted"
    assert run.tell(BOB, say.said(Tag.Revoke), grant).error == ""
    assert vm.data(grant) == b""
    assert run.tell(ANN, say.said(Tag.Withdraw)).error == ""
    assert run.tell(ANN, JOIN, grant).error == "NotGranted"


def test_a_grant_of_another_run_is_worth_nothing(vm: Vm, run: VmRun) -> None:
    other = VmRun(vm, replace(run.run, run_id="granting"))
    grant = say.grant_address(PROGRAM, other.address, ANN)
    give = say.said(Tag.Authorize, grantee=bytes(ANN))
    assert other.tell(OWNER, give, grant, say.SYSTEM).error == ""
    closed = VmRun.bare(vm, replace(run.run, run_id="not-granting"), open=0)
    assert not closed.update(closed.run).error
    assert closed.tell(ANN, JOIN, grant).error == "WrongGrant"


def test_a_run_is_closed_when_nobody_is_in_it(run: VmRun) -> None:
    free = say.said(Tag.FreeCoordinator)
    assert run.tell(ANN, JOIN).error == ""
    assert run.tell(OWNER, free).error == "StillRunning"
    assert run.tell(OWNER, say.said(Tag.SetPaused, paused=1)).error == ""
    before = run.vm.svm.get_balance(OWNER) or 0
    assert run.tell(OWNER, free).error == ""
    assert run.data == b""
    assert (run.vm.svm.get_balance(OWNER) or 0) > before + 10**9, "the rent comes back"
    assert run.tell(ANN, JOIN).error == "WrongOwner"


def test_two_ticks_in_one_slot_count_once(run: VmRun) -> None:
    for key in (ANN, BOB):
        assert run.tell(key, JOIN).error == ""
    assert run.state.phase is Phase.Warmup
    assert run.tell(EVE, say.said(Tag.Tick)).error == "NothingDue", "too early"
    run.vm.at(1000 + 121)
    told = say.instruction(PROGRAM, say.said(Tag.Tick), EVE, run.address)
    assert run.vm.send(told, told, payer=EVE).error == "NothingDue", "both or none"
    assert run.vm.send(told, payer=EVE).error == ""
    assert run.vm.send(told, payer=EVE).error == "NothingDue"


@pytest.mark.parametrize("seconds", [-(2**63), -1, 0, 2**40 + 1, 2**63 - 1])
def test_a_clock_far_off_breaks_nothing(run: VmRun, seconds: int) -> None:
    run.vm.at(seconds)
    for key in (ANN, BOB):
        assert run.tell(key, JOIN).error == ""
    run.tell(EVE, say.said(Tag.Tick))
    assert run.tell(ANN, say.said(Tag.HealthCheck, speed=2**32 - 1)).error == ""
    run.vm.at(5000)
    run.tell(EVE, say.said(Tag.Tick))
    run.state  # noqa: B018  it can still be read


def test_a_join_is_no_instruction_of_another_program(run: VmRun) -> None:
    """An account of ours that another program would have to write stays as it is."""
    told = say.instruction(say.SYSTEM, say.said(Tag.Tick), EVE, run.address)
    before = run.data
    assert run.vm.send(told, payer=EVE).error
    assert run.data == before


def put_number(run: VmRun, at: int, size: int, number: int) -> None:
    """Change a number of the account behind the program's back."""
    found = run.vm.svm.get_account(run.address)
    assert found is not None
    data = bytearray(found.data)
    data[at : at + size] = number.to_bytes(size, "little")
    run.vm.svm.set_account(run.address, Account(found.lamports, bytes(data), PROGRAM))


@pytest.mark.parametrize(
    ("had", "then"), [(0, 50), (2**64 - 51, 2**64 - 1), (2**64 - 9, 2**64 - 1)]
)
def test_points_are_shared_by_who_finishes_an_epoch(vm: Vm, had: int, then: int) -> None:
    config = replace(CONFIG, min_clients=2, rounds_per_epoch=1, delay=0, cooldown_time=5.0)
    for key in (ANN, BOB):
        vm.fund(key)
    vm.at(1000)
    run = VmRun(vm, Run(run_id=f"run-{next(names)}", config=config), points=100)
    chain = HashChain(b"x", 20)
    for key in (ANN, BOB):
        run.tell(key, say.said(Tag.JoinRun, b"here", address_len=4, reveal=chain.end))
    slots_at, points_at = layout.RUN.fields["slots"][1], layout.SLOT.fields["points"][1]  # type: ignore[index]
    for slot in range(2):
        put_number(run, slots_at + slot * layout.SLOT.itemsize + points_at, 8, had)
    seconds = 1000
    while run.state.epoch_number == 0:
        seconds += 30
        assert seconds < 5000, run.state.phase
        vm.at(seconds)
        for key in (ANN, BOB):
            run.tell(key, say.said(Tag.HealthCheck))
            state, mine = run.state, account.slot_of(run.record, bytes(key))
            if state.phase in IN_ROUND and mine is not None:
                place = state.find(bytes(key))
                attested = attest(state, place or 0, 3, 0)
                revealed = chain.reveal(mine["reveal"].tobytes()) or b""
                run.tell(key, say.spoken(attested, state, 7, revealed))
        run.tell(EVE, say.said(Tag.Tick))
    assert run.record["slots"][:2]["points"].tolist() == [then, then]


def a_round(vm: Vm) -> VmRun:
    """Ann and Bob are in a round, and both are its witnesses."""
    for key in (ANN, BOB, EVE):
        vm.fund(key)
    vm.at(1000)
    config = replace(CONFIG, rounds_per_epoch=2, delay=0)
    run = VmRun(vm, Run(run_id=f"run-{next(names)}", config=config))
    for key in (ANN, BOB):
        joined = say.said(Tag.JoinRun, reveal=CHAINS[key].end)
        assert run.tell(key, joined).error == ""
    for key in (ANN, BOB):
        assert run.tell(key, say.said(Tag.WarmupReady)).error == ""
    assert run.state.phase is Phase.RoundTrain
    return run


def proof(run: VmRun, of: Pubkey) -> bytes:
    """The proof of a client that saw nothing, true but for that."""
    state = run.state
    place = state.find(bytes(of))
    assert place is not None, "nobody has left: places are indices"
    true = state.committee(state.round).get_witness(place)
    slot = account.slot_of(run.record, bytes(of))
    assert slot is not None
    return say.said(
        Tag.Witness,
        bytes(16),
        height=state.round.height,
        epoch=state.epoch_number,
        position=true.position,
        index=true.index,
        elected=1,
        reveal=CHAINS[of].reveal(slot["reveal"].tobytes()),
        participant_len=8,
        broadcast_len=8,
    )


CHAINS = {key: HashChain(bytes(key), 9) for key in (ANN, BOB)}


def test_nobody_is_a_witness_at_anothers_index(vm: Vm) -> None:
    run = a_round(vm)
    before = run.data
    assert run.tell(BOB, proof(run, ANN)).error == "WrongIndex"
    assert run.tell(EVE, proof(run, ANN)).error == "NotAMember"
    for index in (2, 255, 256, 2**32, 2**64 - 1):
        spoofed = bytearray(proof(run, BOB))
        at = layout.INSTRUCTIONS[Tag.Witness].fields["index"][1]  # type: ignore[index]
        spoofed[at : at + 8] = index.to_bytes(8, "little")
        assert run.tell(BOB, bytes(spoofed)).error == "WrongIndex"
    assert run.data == before


def test_what_is_said_again_counts_once(vm: Vm) -> None:
    """In a transaction of its own; the same transaction is run once by the cluster."""
    run = a_round(vm)
    said = proof(run, ANN)
    told = say.instruction(PROGRAM, said, ANN, run.address)
    assert run.vm.send(told, told, payer=ANN).error == "Duplicate", "both or none"
    assert len(run.state.round.witnesses) == 0
    assert run.tell(ANN, said).error == ""
    assert run.tell(ANN, said).error == "Duplicate"
    assert len(run.state.round.witnesses) == 1
    assert run.tell(BOB, proof(run, BOB)).error == ""
    assert run.tell(EVE, say.said(Tag.Tick)).error == ""
    assert run.state.round.height == 1
    assert run.tell(ANN, said).error == "WrongRound", "a proof of another round"


def test_a_run_is_not_made_anew_while_it_is_there(run: VmRun) -> None:
    made = say.said(Tag.InitCoordinator, run.run.run_id.encode(), lamports=10**10)
    assert run.tell(ANN, JOIN).error == ""
    before = run.data
    for signer in (OWNER, EVE):
        assert run.tell(signer, made, say.SYSTEM).error == "AlreadyThere"
    assert run.data == before
    assert run.tell(ANN, say.said(Tag.Withdraw)).error == ""
    free = say.instruction(PROGRAM, say.said(Tag.FreeCoordinator), OWNER, run.address)
    again = say.instruction(PROGRAM, made, OWNER, run.address, say.SYSTEM)
    assert run.vm.send(free, again, payer=OWNER).error == "AlreadyThere", "not at once"
    assert run.data != b""
    assert run.vm.send(free, payer=OWNER).error == ""
    assert run.vm.send(again, payer=OWNER).error == "", "its name is free again"


def test_who_leaves_leaves_a_slot(run: VmRun) -> None:
    joined = say.said(Tag.JoinRun, reveal=bytes(32))
    for number in range(layout.SLOTS + 9):
        key = Pubkey(sha256(b"passing %d" % number).digest())
        run.vm.fund(key)
        assert run.tell(key, joined).error == ""
        assert run.tell(key, say.said(Tag.Withdraw)).error == ""
    assert not run.record["used"].any()


@pytest.mark.parametrize(
    ("field", "most"),
    [("sequence", 2**64 - 1), ("epoch_number", 2**32 - 1), ("phase_start", 2**64 - 1)],
)
def test_a_counter_at_its_end_breaks_nothing(vm: Vm, field: str, most: int) -> None:
    run = a_round(vm)
    kind, at, *_ = layout.RUN.fields[field]  # type: ignore[index]
    put_number(run, at, kind.itemsize, most)
    for seconds in (1000, 2000, 5000, 9000):
        vm.at(seconds)
        for key in (ANN, BOB):
            run.tell(key, say.said(Tag.HealthCheck))
        run.tell(EVE, say.said(Tag.Tick))
        run.state  # noqa: B018  it can still be read
    assert run.state.progress.step <= CONFIG.total_steps
